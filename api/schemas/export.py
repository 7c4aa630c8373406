"""Plans as other launchers and frameworks read them."""

from api.schemas.base import Document


class ExportDoc(Document):
    """Files that start a job after its plan."""

    job_id: str
    files: dict[str, str]
    """Text by name of file; scripts find the others in their own folder."""
