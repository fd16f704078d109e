"""The pictures of the console in docs/pictures: each screen in a wide light window, and in a narrow dark one.

pictures_console.py ADDRESS FOLDER CHROMIUM
"""

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

SCREENS = {
    "overview": "",
    "tasks": "tasks?state=in-progress&state=blocked&state=aborted",
    "task": "task?id=march+total",
    "inbox": "inbox",
    "failures": "failures",
    "workflows": "workflows",
    "graph": "graph?id=march+total",
    "schedules": "schedules",
    "limits": "limits",
    "workers": "workers",
}
WINDOWS = (("light", 1280, 760), ("dark", 400, 760))


def save(png: bytes, to: Path) -> None:
    with Image.open(io.BytesIO(png)) as image:
        picture = image.convert("RGB")
    # The colours that most pixels have, so that surfaces keep theirs.
    colours = sorted(picture.getcolors(1 << 24), reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette([value for _, colour in colours for value in colour])
    picture.quantize(palette=palette, dither=Image.Dither.NONE).save(to, optimize=True)


def main() -> None:
    address, folder, program = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        for scheme, width, height in WINDOWS:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.goto(address)
            for name, path in SCREENS.items():
                page.goto(address.partition("?")[0] + path)
                if name == "overview":
                    page.locator("[data-drawn]").wait_for()
                tall = page.evaluate("document.querySelector('main').scrollHeight + 90")
                page.set_viewport_size({"width": width, "height": max(360, min(tall, 1280 if width > 400 else height))})
                save(page.screenshot(), folder / f"console-{name}{'' if scheme == 'light' else '-narrow'}.png")
            context.close()
        browser.close()


main()
