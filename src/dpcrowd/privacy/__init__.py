"""Privacy: guarantees, ledgers, noise and allocation. Nothing here does I/O or keeps hidden randomness."""

from dpcrowd.privacy.guarantee import Guarantee, Users
from dpcrowd.privacy.ledger import Accounting, FiniteLedger, Ledger, WindowLedger, open_ledger
from dpcrowd.privacy.noise import Noise, discrete_laplace_var, noise_scale, noise_var
from dpcrowd.privacy.observer import ObserverLedger, Paid, worst_paid
from dpcrowd.privacy.secure_noise import SecureNoise, secure_scale
from dpcrowd.privacy.seeded_noise import SeededNoise

__all__ = [
    "Accounting",
    "FiniteLedger",
    "Guarantee",
    "Ledger",
    "Noise",
    "ObserverLedger",
    "Paid",
    "SecureNoise",
    "SeededNoise",
    "Users",
    "WindowLedger",
    "discrete_laplace_var",
    "noise_scale",
    "noise_var",
    "open_ledger",
    "secure_scale",
    "worst_paid",
]
