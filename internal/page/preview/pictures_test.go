package preview

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"vestibule/internal/lab/browsertest"
	"vestibule/internal/lab/testkit"
)

var rewrite = flag.Bool("rewrite", false, "take the pictures of docs/images anew")

// pictures are the pictures of the docs, by name.
var pictures = []struct {
	name, path string
	wide       bool // of a desktop, otherwise of a phone
	media      []string
	down       bool // the connection is lost
}{
	{name: "queued", path: "/queued"},
	{name: "queued-desktop", path: "/queued", wide: true},
	{name: "queued-message", path: "/queued-message"},
	{name: "queued-counting", path: "/queued-counting"},
	{name: "queued-random", path: "/queued-random"},
	{name: "next", path: "/next"},
	{name: "entering", path: "/entering"},
	{name: "paused-system", path: "/paused-system"},
	{name: "paused-operator", path: "/paused-operator"},
	{name: "paused-site", path: "/paused-site"},
	{name: "closed", path: "/closed"},
	{name: "before", path: "/before"},
	{name: "before-draw", path: "/before-draw"},
	{name: "left", path: "/left"},
	{name: "blocked", path: "/blocked"},
	{name: "offline", path: "/queued", down: true},
	{name: "lost-away", path: "/lost-away"},
	{name: "dark-desktop", path: "/queued-message", wide: true, media: []string{"prefers-color-scheme", "dark"}},
	{name: "contrast", path: "/queued-message", media: []string{"prefers-contrast", "more"}},
	{name: "forced-colors", path: "/queued", media: []string{"forced-colors", "active"}},
	{name: "right-to-left", path: "/queued-message?lang=ar-EG"},
	{name: "chinese", path: "/queued-message?lang=zh-CN"},
}

// TestPictures: the pictures of the docs show the current page. The words in a picture's Description must equal
// those of the page. The picture is compared by blocks, since glyphs differ slightly between versions of browsers
// and fonts. -rewrite takes new ones.
func TestPictures(t *testing.T) {
	t.Parallel()
	ctx, s, url := open(t)
	folder := "../../../docs/images"
	do(t, ctx, phone(), chromedp.Navigate(url+"/queued?lang=zh-CN"))
	if !browsertest.See(t, ctx, chromedp.Evaluate[bool](hasChinese)) {
		t.Fatal("no font has Chinese letters, so the pictures of docs/images cannot be compared: run make packages as root")
	}
	browsertest.See(t, ctx, atStart(standstill))
	browsertest.See(t, ctx, func(ctx context.Context, target *chromedp.Target) (cdp.Empty, error) {
		return cdp.Call(ctx, target, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "UTC"})
	})
	files := map[string]bool{}
	for _, p := range pictures {
		files[p.name+".png"] = true
		browsertest.See(t, ctx, media(append([]string{"prefers-reduced-motion", "reduce"}, p.media...)...))
		path := p.path
		if !strings.Contains(path, "?") {
			path += "?lang=en-US"
		}
		do(t, ctx, chromedp.Navigate(url+path))
		waitFor(t, ctx, `window.vestibule === true`)
		if p.down {
			s.play(func(s *site) { s.down = true })
			for range 2 {
				s.again(t, ctx)
			}
			waitFor(t, ctx, `document.getElementById("vr").dataset.state == "offline"`)
		}
		words := browsertest.See(t, ctx,
			chromedp.Evaluate[string](`document.querySelector("main").innerText.replace(/\s+/g, " ").trim()`))
		width, height := int64(390), int64(844)
		if p.wide {
			width, height = 1280, 800
		}
		now := shot(t, ctx, width, height)
		s.play(func(s *site) { s.down = false })
		file := filepath.Join(folder, p.name+".png")
		if *rewrite {
			testkit.NoError(t, os.WriteFile(file, describe(now, words), 0o644))
			continue
		}
		kept := testkit.Must(os.ReadFile(file))(t)
		if was := description(kept); was != words {
			t.Errorf("%s is stale: make pictures.\nIt shows   %s\nThe page is %s", file, was, words)
		} else if differs := compare(t, kept, now); differs != "" {
			t.Errorf("%s is stale: make pictures. %s", file, differs)
		}
	}
	kept := testkit.Must(os.ReadDir(folder))(t)
	for _, f := range kept {
		if !files[f.Name()] && !strings.HasPrefix(f.Name(), "console-") { // those are of the console's tests
			err := fmt.Errorf("%s is no picture of this test: make pictures", f.Name())
			if *rewrite {
				err = os.Remove(filepath.Join(folder, f.Name()))
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// standstill stops the clock of a page.
const standstill = `(function (now) { Date.now = function () { return now } })(Date.now())`

// hasChinese reports whether two Chinese characters look different; without a font they do not.
const hasChinese = `(function () {
	var pictures = ["待", "间"].map(function (letter) {
		var c = document.createElement("canvas"), g = c.getContext("2d");
		g.font = "40px system-ui, sans-serif";
		g.fillText(letter, 10, 60);
		return c.toDataURL();
	});
	return pictures[0] != pictures[1];
})()`

// Blocks of a picture are squares of this many pixels a side. Glyphs of another browser version change the mean of
// one by about 10 of 255; an extra line, another colour or order changes many blocks by more.
const (
	block     = 24
	tolerance = 24.0 // of the mean of a block
	most      = 0.02 // maximum share of blocks beyond it
)

// compare returns the visible difference of two pictures, or "".
func compare(t *testing.T, a, b []byte) string {
	t.Helper()
	was, now := decode(t, a), decode(t, b)
	if w, n := was.Bounds(), now.Bounds(); w.Dx() != n.Dx() || w.Dy() < n.Dy()-block || w.Dy() > n.Dy()+block {
		return fmt.Sprintf("It is %d by %d pixels, the page is %d by %d.", w.Dx(), w.Dy(), n.Dx(), n.Dy())
	}
	all, changed := 0, 0
	size := was.Bounds().Intersect(now.Bounds())
	for y := 0; y+block <= size.Dy(); y += block {
		for x := 0; x+block <= size.Dx(); x += block {
			all++
			p, q := mean(was, x, y), mean(now, x, y)
			for i := range p {
				if d := p[i] - q[i]; d > tolerance || d < -tolerance {
					changed++
					break
				}
			}
		}
	}
	if share := float64(changed) / float64(all); share > most {
		return fmt.Sprintf("%d of %d blocks look different.", changed, all)
	}
	return ""
}

func decode(t *testing.T, picture []byte) image.Image {
	t.Helper()
	return testkit.Must(png.Decode(bytes.NewReader(picture)))(t)
}

// mean returns the mean red, green and blue of a block, each 0 to 255.
func mean(img image.Image, x, y int) (m [3]float64) {
	for dy := range block {
		for dx := range block {
			r, g, b, _ := img.At(x+dx, y+dy).RGBA()
			m[0], m[1], m[2] = m[0]+float64(r>>8), m[1]+float64(g>>8), m[2]+float64(b>>8)
		}
	}
	for i := range m {
		m[i] /= block * block
	}
	return m
}

// pngHead is the length of a PNG's signature and first chunk.
const pngHead = 8 + 12 + 13

// describe adds a text chunk with the content of the picture.
func describe(picture []byte, words string) []byte {
	chunk := append([]byte("iTXtDescription\x00\x00\x00\x00\x00"), words...)
	out := append([]byte(nil), picture[:pngHead]...)
	out = binary.BigEndian.AppendUint32(out, uint32(len(chunk)-4))
	out = append(out, chunk...)
	out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(chunk))
	return append(out, picture[pngHead:]...)
}

// description returns the text chunk of a picture, or "".
func description(picture []byte) string {
	for at := 8; at+12 <= len(picture); {
		n := int(binary.BigEndian.Uint32(picture[at:]))
		if at+12+n > len(picture) {
			return ""
		}
		if text, ok := strings.CutPrefix(string(picture[at+4:at+8+n]), "iTXtDescription\x00\x00\x00\x00\x00"); ok {
			return text
		}
		at += 12 + n
	}
	return ""
}

// TestComparingPictures: another colour, text or size is detected, a little noise is not.
func TestComparingPictures(t *testing.T) {
	ctx, _, url := open(t)
	take := func(change string) []byte {
		t.Helper()
		do(t, ctx, phone(), chromedp.Navigate(url+"/queued"))
		browsertest.See(t, ctx, chromedp.Evaluate[bool](change+`, true`))
		return shot(t, ctx, 390, 844)
	}
	browsertest.See(t, ctx, atStart(standstill))
	browsertest.See(t, ctx, media("prefers-reduced-motion", "reduce"))
	was := take("0")
	for change, same := range map[string]bool{
		"1": true,
		`document.documentElement.style.webkitFontSmoothing = "antialiased", ` +
			`document.documentElement.style.textRendering = "geometricPrecision"`: true,
		`document.documentElement.style.setProperty("--vr-card", "#dde")`:    false,
		`document.querySelector("progress").remove()`:                        false,
		`document.querySelector(".big").style.flexDirection = "row-reverse"`: false,
	} {
		if differs := compare(t, was, take(change)); (differs == "") != same {
			t.Errorf("%s: %q", change, differs)
		}
	}
	if got := description(describe(was, "Wörter")); got != "Wörter" || description(was) != "" {
		t.Errorf("the description is %q", got)
	}
	if _, err := png.Decode(bytes.NewReader(describe(was, "x"))); err != nil {
		t.Error(err)
	}
}
