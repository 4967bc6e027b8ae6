"""Privacy: guarantees, ledgers, noise and allocation.

Nothing here does I/O or has hidden randomness; `SecureNoise` asks the operating system for entropy in every call.
"""

from dpcrowd.privacy.guarantee import Guarantee, Users
from dpcrowd.privacy.ledger import Accounting, FiniteLedger, Ledger, WindowLedger, open_ledger
from dpcrowd.privacy.noise import Noise, check_noise, discrete_laplace_var, noise_scale, noise_var
from dpcrowd.privacy.observer import ObserverLedger, Paid, worst_paid
from dpcrowd.privacy.opendp_noise import OpenDPNoise, secure_scale
from dpcrowd.privacy.secure_noise import SecureNoise
from dpcrowd.privacy.seeded_noise import SeededNoise

__all__ = [
    "Accounting",
    "FiniteLedger",
    "Guarantee",
    "Ledger",
    "Noise",
    "ObserverLedger",
    "OpenDPNoise",
    "Paid",
    "SecureNoise",
    "SeededNoise",
    "Users",
    "WindowLedger",
    "check_noise",
    "discrete_laplace_var",
    "noise_scale",
    "noise_var",
    "open_ledger",
    "secure_scale",
    "worst_paid",
]
