package browser_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

// chromium is the one browser of all tests. Each test uses its own profile in it.
type chromium struct {
	ctx   context.Context // contains the browser, as chromedp requires
	close func()
	err   error
}

var chrome chromium

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "browser")
	if err == nil {
		defer os.RemoveAll(dir)
		err = trustTestServers(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	chrome = startChromium()
	defer chrome.close()
	return m.Run()
}

func startChromium() chromium {
	program, err := testenv.Chromium()
	if err != nil {
		return chromium{err: err, close: func() {}}
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-background-networking", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("no-proxy-server", true))
	allocated, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocated)
	if err := chromedp.Do(ctx); err != nil {
		err = fmt.Errorf("chromium does not start: %w", err)
		return chromium{err: err, close: func() { cancel(); free() }}
	}
	return chromium{ctx: ctx, close: func() { cancel(); free() }}
}

// A person has a browser with one open page and their own cookies.
type person struct {
	t   *testing.T
	ctx context.Context // contains the page, as chromedp requires
	at  string          // the URL of the gate

	listening sync.WaitGroup

	mu         sync.Mutex
	complaints []string // errors that the browser reported
	tolerated  []string // parts of expected errors
}

// openBrowser opens a browser for a person, with a new profile unless one is given. If no browser is
// installed, openBrowser skips the test and returns false.
func openBrowser(t *testing.T, s *site, profile ...chromedp.ContextOption) (*person, bool) {
	t.Helper()
	if !testenv.Available(t, chrome.err) {
		return nil, false
	}
	if profile == nil {
		profile = append(profile, chromedp.WithNewBrowserContext())
	}
	ctx, cancel := chromedp.NewContext(chrome.ctx, profile...)
	p := &person{t: t, ctx: ctx, at: s.operators}
	p.do() // opens the page
	p.listening.Go(func() { listen(p, log.EntryAdded, logged) })
	p.listening.Go(func() { listen(p, runtime.ExceptionThrown, thrown) })
	p.listening.Go(func() { listen(p, runtime.ConsoleAPICalled, printed) })
	t.Cleanup(func() {
		cancel()
		p.listening.Wait()
		for _, text := range p.complaints {
			t.Errorf("the browser reports: %s", text)
		}
	})
	p.do(send(log.Enable, cdp.Empty{}), send(runtime.Enable, cdp.Empty{}))
	p.resize(1280, 900)
	return p, true
}

// send returns a command of the DevTools protocol as an action.
func send[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (p *person) resize(width, height int64) {
	p.t.Helper()
	p.do(send(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 500,
	}))
}

// prefers sets the preferred colour scheme.
func (p *person) prefers(scheme string) {
	p.t.Helper()
	p.do(send(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	}))
}

// listen records the errors that the browser reports in one kind of event.
func listen[E any](p *person, kind cdp.Event[E], complaint func(E) string) {
	for e, err := range chromedp.Events(p.ctx, kind) {
		if err != nil {
			return
		}
		if text := complaint(e); text != "" {
			p.complain(text)
		}
	}
}

func (p *person) complain(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fine := range p.tolerated {
		if strings.Contains(text, fine) {
			return
		}
	}
	p.complaints = append(p.complaints, text)
}

func logged(e log.EventEntryAdded) string {
	if e.Entry.Level != log.EntryLevelError && e.Entry.Level != log.EntryLevelWarning {
		return ""
	}
	return fmt.Sprintf("%s: %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL)
}

func thrown(e runtime.EventExceptionThrown) string {
	text := e.ExceptionDetails.Text
	if e.ExceptionDetails.Exception != nil {
		text += " " + e.ExceptionDetails.Exception.Description
	}
	return text
}

func printed(e runtime.EventConsoleAPICalled) string {
	switch e.Type {
	case runtime.ConsoleAPICalledTypeError, runtime.ConsoleAPICalledTypeWarning, runtime.ConsoleAPICalledTypeAssert:
		return fmt.Sprintf("console %s, %d arguments", e.Type, len(e.Args))
	default:
		return ""
	}
}

// tolerate allows an error of the browser. It reports every response without success as an
// error.
func (p *person) tolerate(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tolerated = append(p.tolerated, text)
}

func (p *person) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	if len(actions) == 0 {
		ctx = p.ctx // the page lives as long as the context that opened it
	}
	if err := chromedp.Do(ctx, actions...); err != nil {
		p.t.Fatalf("%v\n%s", err, p.text())
	}
}

// text returns the text of the page, for failures.
func (p *person) text() string {
	ctx, cancel := context.WithTimeout(p.ctx, 10*time.Second)
	defer cancel()
	text, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.href + "\n" + document.body.innerText`))
	if err != nil {
		return err.Error()
	}
	return text
}

// open opens a page of the gate.
func (p *person) open(path string) {
	p.t.Helper()
	p.do(chromedp.Navigate(p.at+path), chromedp.WaitReady(chromedp.CSS("body")))
}

// logIn opens the sign-in link that the gate prints.
func (p *person) logIn(token string) {
	p.t.Helper()
	p.open("/login?token=" + token)
	p.sees("Waiting for a decision")
}

// sees waits until the page contains a text.
func (p *person) sees(text string) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("document.body?.innerText.includes(%q)", text), "sees "+text)
}

// eventually waits until a condition is true on the page.
func (p *person) eventually(condition, what string) {
	p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		holds, err := chromedp.Run(p.ctx, chromedp.Evaluate[bool]("Boolean("+condition+")"))
		if err == nil && holds {
			return
		}
		select {
		case <-tick.C:
		case <-limit.C:
			p.t.Fatalf("timed out waiting until %s (%v)\n%s", what, err, p.text())
		}
	}
}

// press presses keys.
func (p *person) press(keys string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(keys))
}

// click clicks on the element that a CSS selector matches. The page may replace the element between the moment
// it is found and the moment its place is asked for, before the mouse does anything; click then finds it again.
func (p *person) click(selector string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	for {
		err := chromedp.Do(ctx, chromedp.Click(chromedp.CSS(selector)))
		if err == nil {
			return
		}
		if text := err.Error(); !strings.Contains(text, "Could not find node") && !strings.Contains(text, "Node is detached") {
			p.t.Fatalf("%s: %v\n%s", selector, err, p.text())
		}
	}
}

// value evaluates an expression on the page.
func value[T any](p *person, expression string) T {
	p.t.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}
