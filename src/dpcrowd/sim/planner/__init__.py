"""What a network of relay servers will reach, computed before it exists (`dpcrowd plan`): no data are needed.

request   what is asked: levels, shares, graph, guarantee
adopt     what a plan takes from a network.toml
moving    what people who move between regions add to the error
replay    the expected error on a series of levels (`replay_staying`: where users stay)
predict   the covariance recursion for a request: deviations, errors, number of samples, reach
goal      a goal in words, such as "5% in every region above 1000"
solve     the least epsilon, slot length or number of servers that reaches a goal
remedies  what would help where a goal is not reached
plan      everything together: `dpcrowd.plan` and its result
text      the recommendation in words
toml      the result as a piece of configuration
live      what `dpcrowd init` and `dpcrowd demo` choose
"""
