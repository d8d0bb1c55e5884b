"""Pages of the program in headless Chromium, at 400 and 1,400 pixels, light and dark: nothing may be wider than the window."""

import shutil
import subprocess

from harness import expect, not_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def look_at(page, folder, shots, height=2600):
    """Opens a page; with `shots`, pictures are kept in that folder under the name of the page."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not browser:
        not_run(f"screenshots of the page {page.name}", "there is no Chromium")
        return
    # The text that the page has in the browser says how wide it is.
    probe = folder / "probe.html"
    source = page.read_text()
    policy = source.index("<meta http-equiv"), source.index(">", source.index("<meta http-equiv")) + 1
    script = ("<script>document.title='WIDE '+document.documentElement.scrollWidth+' '+innerWidth+' '+"
              "getComputedStyle(document.body).backgroundColor</script>")
    probe.write_text(source[: policy[0]] + source[policy[1] :].replace("</body>", script + "</body>"))
    base = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    colours = set()
    for width in (400, 1400):
        for scheme, setting in (("light", "1"), ("dark", "0")):
            blink = f"--blink-settings=preferredColorScheme={setting}"
            frame = folder / "frame.html"
            # A window is never narrower than 500 pixels; a frame may be.
            frame.write_text(f'<body style="margin:0"><iframe src="probe.html" style="border:0;width:{width}px;height:9000px"></iframe>'
                             "<script>onload=()=>{document.body.append(document.querySelector('iframe').contentDocument.title)}</script>")
            dom = subprocess.run([*base, blink, "--allow-file-access-from-files", "--dump-dom", frame.as_uri()],
                                 capture_output=True, timeout=120).stdout.decode(errors="replace")
            if "WIDE " not in dom.split("</script>")[-1]:
                not_run(f"width of the page at {width} pixels", "the browser did not run it")
                continue
            _, wide, inner, colour = dom.split("</script>")[-1].split("<")[0].strip().split(" ", 3)
            expect(f"width at {width} pixels, {scheme}", int(wide) <= int(inner) == width, True)
            colours.add((scheme, colour))
            if shots:
                shots.mkdir(parents=True, exist_ok=True)
                picture = shots / f"{page.stem}-{width}-{scheme}.png"
                subprocess.run([*base, blink, "--allow-file-access-from-files", f"--window-size={max(width, 500)},{height}",
                                f"--screenshot={picture}", frame.as_uri()], capture_output=True, timeout=120)
    expect("light and dark have backgrounds of their own", len({colour for _, colour in colours}), 2)
