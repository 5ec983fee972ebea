package browser_test

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/serviceworker"
	"github.com/chromedp/chromedp"

	"github.com/thoughtgate/thoughtgate-go/internal/channel/pushtest"
)

// trustTestServers makes the gates of all tests trust the certificate of httptest servers. Go
// reads the variable once, before the first connection.
func trustTestServers(dir string) error {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file := filepath.Join(dir, "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	return os.Setenv("SSL_CERT_FILE", file)
}

// vendor replaces the browser's connection to its push service: it subscribes at the test's
// service.
const vendor = `
	window.subscribed = null;
	const made = { endpoint: %q, options: {}, toJSON: () => ({ endpoint: %q, keys: { p256dh: %q, auth: %q } }),
		unsubscribe: async () => { window.subscribed = null; return true; } };
	PushManager.prototype.getSubscription = async () => window.subscribed;
	PushManager.prototype.subscribe = async (options) => {
		made.options = { userVisibleOnly: options.userVisibleOnly, applicationServerKey: options.applicationServerKey.buffer };
		return window.subscribed = made;
	};`

// An approver who presses "Notify me" gets push notifications even without an open page of the
// inbox. The service worker shows the tool, the requester and the time left, but no arguments.
func TestPush(t *testing.T) {
	service := pushtest.New(t, time.Now)
	s := open(t, strings.Replace(plainRules, "waiting:", "workflows: {default: {channels: [inbox, phone]}}\nchannels: {phone: {push: {contact: 'mailto:ops@example.com', allow_private: true}}}\nwaiting:", 1))
	alice, ok := openBrowser(t, s)
	if !ok {
		return
	}
	alice.do(send(browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: "notifications"}, Setting: browser.PermissionSettingGranted, Origin: s.operators,
		BrowserContextID: chromedp.FromContext(alice.ctx).BrowserContextID,
	}))
	registrations := make(chan serviceworker.RegistrationID, 100)
	alice.listening.Go(func() {
		for e, err := range chromedp.Events(alice.ctx, serviceworker.WorkerRegistrationUpdated) {
			if err != nil {
				return
			}
			for _, r := range e.Registrations {
				if strings.HasPrefix(r.ScopeURL, s.operators) && !r.IsDeleted {
					registrations <- r.RegistrationID
				}
			}
		}
	})
	alice.do(send(serviceworker.Enable, cdp.Empty{}))
	alice.logIn(s.token)
	alice.eventually(`navigator.serviceWorker.controller !== null`, "the worker serves the page")
	phone := service.Browser("phone")
	value[bool](alice, "(() => {"+fmt.Sprintf(vendor, phone.Endpoint, phone.Endpoint, phone.Key, phone.Auth)+"return true; })()")
	alice.click("#notify")
	alice.eventually(`document.querySelector("#notify").getAttribute("aria-pressed") === "true" && localStorage.getItem("push") !== null`, "the browser has subscribed")

	call := s.ask(t, "delete_file", map[string]any{"path": "/payroll/bonuses.csv"})
	var told []pushtest.Shown
	waitFor(t, "the gate sends a message", func() bool { told = service.All()["phone"]; return len(told) > 0 })
	if strings.Contains(told[0].Text, "payroll") {
		t.Errorf("the message contains part of the arguments: %s", told[0].Text)
	}
	worker := <-registrations
	// deliver repeats a message until the worker shows it, because a worker that is starting
	// or stopping may miss it.
	deliver := func(text, what string, shown func() bool) {
		t.Helper()
		var last time.Time
		waitFor(t, what, func() bool {
			if time.Since(last) > 2*time.Second {
				alice.do(send(serviceworker.DeliverPushMessage, serviceworker.DeliverPushMessageParams{Origin: s.operators, RegistrationID: worker, Data: text}))
				last = time.Now()
			}
			return shown()
		})
	}
	const shown = `(await (await navigator.serviceWorker.ready).getNotifications()).map((n) => [n.title, n.body, n.tag, n.data].join("|")).join("\n")`
	deliver(told[0].Text, "the worker shows the message", func() bool {
		return strings.HasPrefix(value[string](alice, `(async () => `+shown+`)()`), "Approval needed|delete_file for ")
	})
	if got := value[string](alice, `(async () => `+shown+`)()`); !strings.HasSuffix(got, "|"+told[0].ID+"|"+told[0].ID) || !strings.Contains(got, "min left") {
		t.Errorf("shown: %s", got)
	}
	const alerts = `(async () => (await (await navigator.serviceWorker.ready).getNotifications()).map((n) => [n.title, n.renotify, n.silent].join("|")).join("\n"))()`
	if got := value[string](alice, alerts); got != "Approval needed|true|false" {
		t.Errorf("a replaced notification does not alert: %s", got)
	}
	tap(alice, s)
	alice.eventually(fmt.Sprintf("location.pathname === %q", "/approvals/"+told[0].ID), "a tap opens the page")
	alice.sees("/payroll/bonuses.csv")
	alice.click("#reject")
	alice.sees("Rejected by")
	call.wait(t)
	waitFor(t, "the gate sends the outcome", func() bool { told = service.All()["phone"]; return len(told) > 0 })
	if told[0].Title != "Rejected" || !told[0].Silent {
		t.Errorf("the outcome: %+v", told[0])
	}
	deliver(told[0].Text, "the outcome is shown silently", func() bool { return value[string](alice, alerts) == "Rejected|false|true" })
	value[bool](alice, "(() => {"+fmt.Sprintf(vendor, phone.Endpoint, phone.Endpoint, phone.Key, phone.Auth)+"return true; })()")
	alice.click("#notify")
	alice.eventually(`document.querySelector("#notify").getAttribute("aria-pressed") === "false" && localStorage.getItem("push") === null`, "the browser has unsubscribed")
}

// An approver whose browser blocks notifications is told so.
func TestBlockedNotifications(t *testing.T) {
	s := open(t, plainRules)
	p, ok := openBrowser(t, s)
	if !ok {
		return
	}
	p.do(send(browser.SetPermission, browser.SetPermissionParams{
		Permission: &browser.PermissionDescriptor{Name: "notifications"}, Setting: browser.PermissionSettingDenied, Origin: s.operators,
		BrowserContextID: chromedp.FromContext(p.ctx).BrowserContextID,
	}))
	p.logIn(s.token)
	p.resize(390, 844)
	p.click("#notify")
	p.sees("Your browser blocks notifications of the inbox.")
	p.eventually(`document.querySelector("#notify").offsetHeight > 0`, "the button for notifications")
}

// tap sends the worker the event of a tap on its notification.
func tap(p *person, s *site) {
	p.t.Helper()
	targets, err := chromedp.Targets(p.ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, one := range targets {
		if one.Type != "service_worker" || !strings.HasPrefix(one.URL, s.operators) {
			continue
		}
		ctx, cancel := chromedp.NewContext(p.ctx, chromedp.WithTargetID(one.TargetID))
		defer cancel()
		_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`registration.getNotifications().then(([notification]) =>
			self.dispatchEvent(new NotificationEvent("notificationclick", { notification })))`, chromedp.EvalAwaitPromise))
		if err != nil {
			p.t.Fatal(err)
		}
		return
	}
	p.t.Fatal("the page has no service worker")
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	late, tick := time.After(patience), time.NewTicker(25*time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}
