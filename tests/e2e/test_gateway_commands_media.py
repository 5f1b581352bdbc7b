"""Web pages, diagrams, video and pictures as the one-shot gateway makes them inside the sandbox; outputs are opened."""

from __future__ import annotations

import json
from typing import Any

from PIL import Image

from tests.support.produced import CJK, EVERY_SCRIPT, coloured, ink, pdf, pdf_page, pdf_text, picture, pixel
from tests.support.runner import Chat


def bash(chat: Chat, code: str, **fields: Any) -> dict[str, Any]:
    """Run a bash program that must end well."""
    result = chat.ok(code, language="bash", **fields)
    assert result["exit_code"] == 0, result
    return result


def got(chat: Chat, path: str) -> bytes:
    """The bytes of a file of the conversation."""
    answer = chat.get(path)
    assert answer.status_code == 200, (path, chat.files())
    return answer.content


# --- capture_webpage

PAGE = f"""<!doctype html><meta charset="utf-8"><title>Local</title>
<body style="margin: 20px; background: #fff"><h1>Page {EVERY_SCRIPT}</h1>
<div id="late"></div><div style="height: 1400px; background: #036">tall</div>
<script>document.getElementById("late").textContent = "written by " + "script";</script>
"""
CAPTURE = """
from playwright.sync_api import sync_playwright
with open("url.txt") as file:
    url = file.read().strip()
with sync_playwright() as p:
    browser = p.chromium.launch(args=["--no-sandbox"])
    page = browser.new_page()
    page.goto(url, wait_until="networkidle", timeout=30000)
    page.screenshot(path="capture.png", full_page=True)
    page.pdf(path="capture.pdf")
    with open("capture.txt", "w") as file:
        file.write(page.inner_text("body"))
    browser.close()
"""
SERVED = """
import functools, http.server, threading
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory="/workspace/site")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
open("url.txt", "w").write(f"http://127.0.0.1:{server.server_port}/page.html")
"""


def test_capture_a_page(chat: Chat) -> None:
    chat.put("site/page.html", PAGE.encode())
    chat.put("url.txt", b"file:///workspace/site/page.html\n")
    chat.ok(CAPTURE)
    captured(chat)


def test_capture_a_page_that_the_sandbox_serves(chat: Chat) -> None:
    chat.put("site/page.html", PAGE.encode())
    chat.ok(SERVED + CAPTURE)
    captured(chat)


def captured(chat: Chat) -> None:
    """The page as a picture, as PDF and as text."""
    shown = picture(got(chat, "capture.png"))
    assert shown.width == 1280
    assert shown.height > 1400
    assert coloured(shown) > 100
    assert "written by script" in got(chat, "capture.txt").decode()
    assert CJK in pdf_text(got(chat, "capture.pdf"))
    assert ink(pdf_page(got(chat, "capture.pdf"))) > 0.002


def test_a_page_that_cannot_be_reached_is_a_failure(chat: Chat) -> None:
    chat.put("url.txt", b"http://127.0.0.1:9/\n")
    result = chat.run(CAPTURE)
    assert result["outcome"] == "error"
    assert "net::ERR_" in result["error"]["message"]


def test_async_launch_and_a_context_with_options(chat: Chat) -> None:
    chat.put("site/page.html", PAGE.encode())
    chat.ok(
        "from playwright.async_api import async_playwright\n"
        "async with async_playwright() as p:\n"
        "    browser = await p.chromium.launch(\n"
        "        args=['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu'])\n"
        "    context = await browser.new_context(viewport={'width': 1280, 'height': 900})\n"
        "    page = await context.new_page()\n"
        "    await page.goto('file:///workspace/site/page.html', wait_until='domcontentloaded', timeout=45000)\n"
        "    await page.screenshot(path='browser-screenshot.png')\n"
        "    await browser.close()\n"
    )
    assert picture(got(chat, "browser-screenshot.png")).size == (1280, 900)


def test_plotly_draws_pictures(chat: Chat) -> None:
    chat.ok("import plotly.graph_objects as go\ngo.Figure(go.Bar(x=['a', 'b'], y=[1, 3])).write_image('chart.png')")
    assert ink(picture(got(chat, "chart.png"))) > 0.05


# --- render_excalidraw

SCENE = {
    "type": "excalidraw",
    "elements": [
        {"id": "box", "type": "rectangle", "x": 10, "y": 10, "width": 200, "height": 80, "backgroundColor": "#a5d8ff"},
        {"id": "in", "type": "text", "text": f"Start {CJK}", "containerId": "box", "width": 150, "height": 25,
         "textAlign": "center", "verticalAlign": "middle", "x": 20, "y": 35},
        {"type": "ellipse", "x": 400, "y": 0, "width": 160, "height": 100, "label": {"text": "End 😀"}},
        {"type": "arrow", "x": 400, "y": 50, "points": [0, 0, -190, 0]},
        {"type": "diamond", "x": 150, "y": 150, "width": 120, "height": 90, "fillStyle": "hachure",
         "backgroundColor": "#ffc9c9"},
        {"type": "freedraw", "x": 350, "y": 200, "points": [[0, 0], [-20, 30], [40, -25]]},
        {"type": "text", "text": "مرحبا", "x": 420, "y": 180, "fontSize": 28},
    ],
    "appState": {"viewBackgroundColor": "#ffffff"},
}  # fmt: skip


def test_a_scene_to_each_format(chat: Chat) -> None:
    chat.put("diagram.excalidraw", json.dumps(SCENE).encode())
    for ending in ("svg", "png", "pdf"):
        bash(chat, f'excalirender diagram.excalidraw -o "diagram.{ending}"')
    svg = got(chat, "diagram.svg").decode()
    assert svg.startswith("<svg")
    assert "unhandled" not in svg
    shown = picture(got(chat, "diagram.png"))
    assert shown.width > 560
    assert shown.height > 260
    assert ink(shown) > 0.05
    assert len(pdf(got(chat, "diagram.pdf")).pages) == 1
    assert CJK in pdf_text(got(chat, "diagram.pdf"))


def test_a_wrong_scene_says_what_is_wrong(chat: Chat) -> None:
    chat.put("diagram.excalidraw", b'{"elements": 3}')
    result = chat.run('excalirender diagram.excalidraw -o "diagram.png"', language="bash")
    assert (result["exit_code"], result["stderr"]) == (
        1,
        "excalirender: diagram.excalidraw is not an Excalidraw scene: there is no list `elements`\n",
    )


# --- render_video: two passes, as the gateway makes them

MATERIAL = """set -e
ffmpeg -v error -f lavfi -i testsrc2=size=640x360:rate=25:duration=2 -f lavfi -i sine=frequency=440:duration=2 \
  -c:v libx264 -pix_fmt yuv420p -c:a aac in0.mp4
ffmpeg -v error -f lavfi -i color=c=blue:size=320x240:rate=30:duration=2 -c:v libx264 -pix_fmt yuv420p in1.mp4
ffmpeg -v error -f lavfi -i sine=frequency=220:duration=3 in2.mp3
python -c 'from PIL import Image; Image.new("RGB", (64, 64), (255, 200, 0)).save("in3.png")'
printf '标题 Title' > text0.txt
"""
PROBE = """set -e
for name in in0.mp4 in1.mp4 in2.mp3; do
  ffprobe -v error -show_entries format=duration -of default=noprint_wrappers=1:nokey=1 "$name"
done
fc-match -f '%{file}\\n' 'Inter:style=Bold'
fc-match -f '%{file}\\n' 'Noto Sans CJK SC:style=Bold'
"""
FILTER = """[0:v]settb=AVTB[a0];[1:v]settb=AVTB[a1];
[a0][a1]xfade=transition=fade:duration=0.5:offset=1.5[x];
[x]drawtext=fontfile=FONT:textfile=text0.txt:expansion=none:fontsize=48:fontcolor=0xffffff:x=(w-tw)/2:y=h-h/6:
box=1:boxcolor=0x000000@0.6:boxborderw=12:alpha='if(lt(t,0.4),t/0.4,1)'[d];
[2:v]scale=64:-2[i];[d][i]overlay=x=10:y=10:enable='between(t,0,3)'[o];[o]fade=t=out:st=3:d=0.5[v];
[3:a]volume=0.8,loudnorm=I=-16:TP=-1.5:LRA=11,adelay=200:all=1,afade=t=in:st=0:d=0.3[m0];
[4:a]volume=1.0,loudnorm=I=-16:TP=-1.5:LRA=11,adelay=0:all=1[m1];
[m0][m1]amix=inputs=2:normalize=0[a]
"""
RENDER = """set -e
normalise() {
  local chain=scale=640:360:force_original_aspect_ratio=decrease,pad=640:360:-1:-1,fps=30,setsar=1
  ffmpeg -v error -y -i "$1" -an -vf "$chain" -c:v libx264 -crf 20 -pix_fmt yuv420p "$2"
}
normalise in0.mp4 clip0.mp4
normalise in1.mp4 clip1.mp4
ffmpeg -v error -y -i clip0.mp4 -i clip1.mp4 -loop 1 -t 3.5 -i in3.png -i in2.mp3 -i in0.mp4 \
  -filter_complex_script filter.txt -map '[v]' -map '[a]' -c:v libx264 -crf 20 -pix_fmt yuv420p -c:a aac -b:a 192k \
  -movflags +faststart -shortest joined.mp4
mv joined.mp4 "video.mp4"
rm clip0.mp4 clip1.mp4
"""
LOOK = """set -e
ffprobe -v error -show_streams -show_format -of json video.mp4
ffmpeg -v error -ss 1 -i video.mp4 -frames:v 1 one.png
ffmpeg -v error -ss 2.7 -i video.mp4 -frames:v 1 two.png
"""


def test_a_video_in_two_passes(chat: Chat) -> None:
    bash(chat, MATERIAL)
    *durations, inter, cjk = bash(chat, PROBE)["stdout"].split("\n")[:5]
    assert [round(float(value)) for value in durations] == [2, 2, 3]
    assert "Inter" in inter
    chat.put("filter.txt", FILTER.replace("FONT", cjk).encode())
    bash(chat, RENDER, timeout_ms=120_000)
    seen = json.loads(bash(chat, LOOK)["stdout"])
    video, sound = seen["streams"]
    assert (video["codec_name"], video["width"], video["height"], video["r_frame_rate"]) == ("h264", 640, 360, "30/1")
    assert sound["codec_name"] == "aac"
    assert 3.0 < float(seen["format"]["duration"]) < 3.7
    look(picture(got(chat, "one.png")), picture(got(chat, "two.png")))
    assert "clip0.mp4" not in chat.files()


def test_a_filter_file_in_the_newer_way(chat: Chat) -> None:
    chat.put("filter.txt", b"color=c=red:size=64x48:duration=0.1[v]\n")
    bash(chat, "ffmpeg -v error -/filter_complex filter.txt -map '[v]' -frames:v 1 one.png")
    assert pixel(picture(got(chat, "one.png")), 30, 20)[0] > 200


def look(early: Image.Image, late: Image.Image) -> None:
    """One clip early, the other late; the badge and the title on both."""
    for frame in (early, late):
        red, green, blue = pixel(frame, 30, 30)
        assert (red > 200, green > 150, blue < 90) == (True, True, True)
    red, green, blue = pixel(late, 500, 100)
    assert blue > 200
    assert red + green < 60
    assert 0.05 < ink(late, (200, 300, 440, 345)) < 0.95


# --- pictures of other kinds, text in pictures


def test_svg_heif_and_jpeg_xl_become_png(chat: Chat) -> None:
    chat.put(
        "in.svg",
        f'<svg xmlns="http://www.w3.org/2000/svg" width="300" height="60"><text x="5" y="40" font-size="28">'
        f"{EVERY_SCRIPT}</text></svg>".encode(),
    )
    bash(chat, "rsvg-convert -o svg.png in.svg")
    # The emoji is an outline here, so the test is that each of the three scripts left ink.
    drawn = picture(got(chat, "svg.png"))
    assert [ink(drawn, (x, 0, x + 60, 60)) > 0.02 for x in (10, 115, 160)] == [True] * 3
    chat.ok(
        "import pillow_heif, pillow_jxl\nfrom PIL import Image\npillow_heif.register_heif_opener()\n"
        "red = Image.new('RGB', (64, 48), (200, 30, 30))\n"
        "red.save('a.heic', quality=90); red.save('a.jxl')\n"
        "for name in ('heic', 'jxl'):\n"
        "    Image.open(f'a.{name}').convert('RGB').save(f'{name}.png')\n"
    )
    bash(chat, "djxl a.jxl djxl.png 2>/dev/null && magick a.heic magick.png")
    for name in ("heic.png", "jxl.png", "djxl.png", "magick.png"):
        shown = picture(got(chat, name))
        assert shown.size == (64, 48)
        assert abs(pixel(shown, 30, 20)[0] - 200) < 8


def test_text_in_a_picture_is_read(chat: Chat) -> None:
    chat.ok(
        "from PIL import Image, ImageDraw, ImageFont\n"
        "page = Image.new('L', (900, 160), 255)\n"
        "font = ImageFont.truetype('/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf', 44)\n"
        "ImageDraw.Draw(page).text((20, 20), 'Invoice 4711\\nGrüße aus Köln', font=font, fill=0)\n"
        "page.save('scan.png')\n"
    )
    assert "Grüße aus Köln" in bash(chat, "tesseract scan.png - -l eng+deu")["stdout"]
    assert "Invoice 4711" in chat.ok("import pytesseract; print(pytesseract.image_to_string('scan.png'))")["stdout"]


def test_a_graph_is_laid_out(chat: Chat) -> None:
    bash(chat, f"echo 'digraph {{ a -> \"{CJK}\" }}' | dot -Tpng -o graph.png")
    assert ink(picture(got(chat, "graph.png"))) > 0.01
