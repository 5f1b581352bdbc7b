# Targeted edit of the uploaded deck: two texts change, run by run; layout and formatting stay.
from pptx import Presentation

CHANGES = {"Halden & Rowe Freight": "Marlow Bay Logistics", "12 March 2026": "17 March 2026"}


def frames(slide):
    """Every text frame of a slide: shapes, table cells and the speaker notes."""
    for shape in slide.shapes:
        if shape.has_text_frame:
            yield shape.text_frame
        elif shape.has_table:
            yield from (cell.text_frame for row in shape.table.rows for cell in row.cells)
    if slide.has_notes_slide:
        yield slide.notes_slide.notes_text_frame


review = Presentation("/workspace/uploads/review.pptx")
changed = []
for number, slide in enumerate(review.slides, 1):
    for frame in frames(slide):
        for run in (run for paragraph in frame.paragraphs for run in paragraph.runs):
            for old, new in CHANGES.items():
                if old in run.text:
                    run.text = run.text.replace(old, new)
                    changed.append((number, run.text))
review.save("/workspace/outputs/review.pptx")
changed
