"""The features that an agent and a worker have, and the settings that this makes.

A part is taken out with its lines here.
"""

from __future__ import annotations

from ragmeter.parts.canary.part import CanaryPart
from ragmeter.parts.collection import PartKinds, compose_settings
from ragmeter.parts.control.part import ControlPart
from ragmeter.parts.drift.part import DriftPart
from ragmeter.parts.incidents.part import IncidentsPart
from ragmeter.parts.index.part import IndexPart
from ragmeter.parts.labels.part import LabelsPart
from ragmeter.parts.objectives.part import ObjectivesPart
from ragmeter.parts.questions.part import QuestionsPart
from ragmeter.parts.segments.part import SegmentsPart

PARTS: PartKinds = [
    IncidentsPart,  # its alerts are listed before those of other parts
    CanaryPart,
    ControlPart,
    DriftPart,
    IndexPart,
    LabelsPart,
    ObjectivesPart,
    QuestionsPart,
    SegmentsPart,
]

AgentSettings = compose_settings("AgentSettings", PARTS, __name__)
