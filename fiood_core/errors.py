"""The errors that fiood raises on purpose.

Every message names the thing, the place and the next step.  All derive from :class:`FioodError`, so a caller can tell
a refusal from a bug.
"""

from __future__ import annotations


class FioodError(Exception):
    """Base class of every refusal that fiood makes on purpose."""


class PluginError(FioodError):
    """A plugin cannot be found, is claimed twice, is out of the API window, or fails to load."""


class UnknownComponentError(PluginError, KeyError):
    """No component is registered under that name."""

    def __str__(self) -> str:  # KeyError quotes its argument
        return str(self.args[0])


class ParameterError(FioodError, ValueError):
    """A component got a parameter that it does not have, or a value it cannot take."""


class InputError(FioodError, ValueError):
    """An array, label vector or head is missing, misshapen or not finite."""


class NotFittedError(FioodError, RuntimeError):
    """A detector was asked to score before it was fitted."""


class StatisticError(FioodError, ValueError):
    """A training statistic has too little under it to mean anything."""


class ImageError(FioodError):
    """A picture cannot be decoded under the image policy."""


class DataError(FioodError):
    """A dataset is missing, incomplete or altered."""


class StoreError(FioodError):
    """The feature store is damaged, full or out of step with what was asked."""


class GateError(FioodError):
    """A check before scoring failed: the head, the accuracy or the label order is not what it must be."""


class SuiteError(FioodError, ValueError):
    """A suite or a command line does not describe a run that can be planned."""


class ResultError(FioodError, ValueError):
    """Scores or results that must not be reported: NaN, infinite, of the wrong length, or incomplete."""


class ConformanceError(FioodError, AssertionError):
    """A component does not behave as its interface asks; see :mod:`fiood_core.testing`."""
