"""Filters: pure functions on arrays with servers first and regions last."""

from dpcrowd.filters.consensus import check_gain, consensus_gain, consensus_pull, default_gain, fuse
from dpcrowd.filters.course import Course
from dpcrowd.filters.kalman import observation_info, predict, update
from dpcrowd.filters.matrix import fuse_matrix, group_info, predict_matrix, update_matrix
from dpcrowd.filters.model import ProcessModel
from dpcrowd.filters.observation import Observation, observation_var

__all__ = [
    "Course",
    "Observation",
    "ProcessModel",
    "check_gain",
    "consensus_gain",
    "consensus_pull",
    "default_gain",
    "fuse",
    "fuse_matrix",
    "group_info",
    "observation_info",
    "observation_var",
    "predict",
    "predict_matrix",
    "update",
    "update_matrix",
]
