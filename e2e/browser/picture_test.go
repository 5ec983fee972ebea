package browser_test

import (
	"bytes"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
)

// pictures is a directory for pictures of every page, among them the inbox.png of
// the README. Look at them, and then
//
//	go test ./e2e/browser -run TestPicture -pictures /tmp/pictures
//	cp /tmp/pictures/inbox.png docs/
var pictures = flag.String("pictures", "", "`directory` for pictures of the pages")

// picture takes a screenshot.
func (p *person) picture(name string) {
	p.t.Helper()
	shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		p.t.Fatal(err)
	}
	if blank(p.t, shot) {
		p.t.Errorf("%s is blank", name)
	}
	save(p.t, name, shot)
}

func save(t *testing.T, name string, shot []byte) {
	t.Helper()
	if err := os.MkdirAll(*pictures, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), shot, 0o600); err != nil {
		t.Fatal(err)
	}
}

// blank reports whether a picture has fewer than a few colours.
func blank(t *testing.T, shot []byte) bool {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[color.Color]bool{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y += 3 {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x += 3 {
			seen[img.At(x, y)] = true
		}
	}
	return len(seen) < 12
}

// No page is blank, on a phone or a computer, in light or dark colours.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		return // TestPagesAreAccessible opens all of them
	}
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.looks("login", "/login")
	p.logIn(s.token)
	p.looks("empty", "/")
	scene(t, s)
	p.open("/")
	p.eventually(`document.querySelectorAll(".row").length === 4`, "four rows")
	p.looks("list", "/")
	request := value[string](p, `[...document.querySelectorAll(".row .open")].find((a) => a.textContent.includes("refund")).pathname`)
	p.looks("request", request)
	p.open(request)
	p.click("#approve")
	p.sees("Approved by operator")
	p.looks("decided", request)
	p.looks("history", "/history")
	hostile(t, s)
	p.open("/")
	p.eventually(`document.querySelectorAll(".row").length === 4`, "four rows")
	p.press("j")
	p.press("x")
	p.eventually(`document.querySelector(".bulk").checkVisibility()`, "selected calls can be rejected")
	p.picture("bulk")
	p.press("?")
	p.picture("shortcuts")
	p.looks("hostile", value[string](p, `document.querySelector(".row:last-child .open").pathname`))
}

// looks takes screenshots of a page in each size and colour scheme.
func (p *person) looks(name, path string) {
	p.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		p.prefers(scheme)
		for _, width := range []int64{1280, 390} {
			p.resize(width, 860)
			p.open(path)
			p.eventually(`document.readyState === "complete"`, "the page is loaded")
			p.picture(fmt.Sprintf("%s-%s-%d", name, scheme, width))
		}
	}
	p.resize(1280, 860)
	p.prefers("light")
}

// scene makes typical calls of agents.
func scene(t *testing.T, s *site) {
	t.Helper()
	for _, name := range []string{"send_invoice", "drop_table"} {
		s.upstream.addTool(name, "As the name says.")
	}
	s.ask(t, "drop_table", map[string]any{"database": "staging", "table": "sessions_2024"})
	s.ask(t, "send_invoice", map[string]any{"to": "ap@northwind.example", "number": "INV-20391", "total": "1 280.00 EUR"})
	s.ask(t, "delete_file", map[string]any{"path": "/backups/2026-11-14.tar.gz", "force": true})
	s.ask(t, "refund_payment", map[string]any{
		"payment": "pay_81Hd02", "amount": 249.5, "currency": "EUR",
		"customer": map[string]any{"name": "Rosa Lind", "email": "rosa@example.com", "since": "2023-04-11"},
		"items":    []string{"Desk lamp, brass", "Bulb, warm white"},
		"note":     "Arrived broken. The customer sent photos.",
	})
}

// The pages in unusual states: many calls, or errors.
func TestPicturesOfErrors(t *testing.T) {
	if *pictures == "" {
		return
	}
	b := openSharedInbox(t, map[string]approval.Workflow{"default": {}, "brief": {Timeout: time.Second}})
	p, ok := b.enter(t, "alice")
	if !ok {
		return
	}
	p.tolerate("net::")
	crowd(t, b, 197)
	for range 3 {
		b.hold(t, "ci-deploy", "delete_file", `{"path":"/srv/cache"}`)
	}
	p.sizes("pending-200", "/")
	p.sizes("hostile", "/approvals/"+string(b.hold(t, "ci-d\u0435ploy", "d\u0435lete_file", hostileScript(t))))
	request := "/approvals/" + string(b.hold(t, "support-bot", "refund_payment", `{"payment":"pay_81Hd02","amount":249.5,"currency":"EUR"}`))
	for _, width := range []int64{1280, 390} {
		p.resize(width, 900)
		p.open(request)
		p.eventually(`document.readyState === "complete"`, "the page is loaded")
		p.do(chromedp.SendKeys(chromedp.CSS("#reason"), "agreed with the customer by phone"))
		b.disconnect()
		p.sees("The gate does not answer.")
		p.picture(fmt.Sprint("gate-down-", width))
		b.reconnect()
		p.eventually(`document.querySelector("#lost").hidden`, "the gate is back")
	}
	p.resize(1280, 900)
	expired := "/approvals/" + string(b.holdFor(t, "brief", "support-bot", "refund_payment", `{"payment":"pay_81Hd03","amount":12}`))
	p.open(expired)
	p.sees("Nobody decided in time.")
	p.sizes("expired", expired)
}

// sizes takes screenshots of a page on a computer and on a phone.
func (p *person) sizes(name, path string) {
	p.t.Helper()
	for _, width := range []int64{1280, 390} {
		p.resize(width, 900)
		p.open(path)
		p.eventually(`document.readyState === "complete"`, "the page is loaded")
		p.picture(fmt.Sprint(name, "-", width))
	}
}

// hostileScript returns arguments that hide their effect.
func hostileScript(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"path":    "/reports/\u202egpj.exe",
		"host":    "p\u0430ypal.example",
		"command": "echo 'nightly backup: read-only, safe'\n" + strings.Repeat("# all is well\n", 30) + "psql -c 'DROP TABLE customers'\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The picture in the README shows the list next to a call.
func TestPictureForTheReadme(t *testing.T) {
	if *pictures == "" {
		return
	}
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.logIn(s.token)
	scene(t, s)
	p.eventually(`document.querySelectorAll(".row").length === 4`, "four rows")
	p.open(value[string](p, `[...document.querySelectorAll(".row .open")].find((a) => a.textContent.includes("refund")).pathname`))
	p.sees("Why it is held")
	p.resize(1280, 800)
	shot, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		t.Fatal(err)
	}
	save(t, "inbox", small(t, shot))
}

// small returns a picture with fewer colours, whose file is smaller.
func small(t *testing.T, shot []byte) []byte {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	few := image.NewPaletted(img.Bounds(), commonest(img, 256))
	draw.Draw(few, few.Bounds(), img, img.Bounds().Min, draw.Src)
	var b bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, few); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// commonest returns the most frequent colours of a picture.
func commonest(img image.Image, most int) color.Palette {
	count := map[color.RGBA]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			count[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255}]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(count), func(a, b color.RGBA) int { return count[b] - count[a] })
	var chosen color.Palette
	for _, c := range colours[:min(len(colours), most)] {
		chosen = append(chosen, c)
	}
	return chosen
}
