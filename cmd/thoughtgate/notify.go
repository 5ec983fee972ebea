package main

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
)

// A notifier shows new calls on the desktop, if there is a program for that.
type notifier struct {
	command func(title, text string) []string // nil if there is none
	queue   chan casefile.Approval
}

// newNotifier returns a notifier, and starts what it needs until ctx ends.
func newNotifier(ctx context.Context, look func(string) (string, error)) *notifier {
	n := &notifier{command: desktopCommand(look), queue: make(chan casefile.Approval, 4)}
	if n.command != nil {
		go n.run(ctx)
	}
	return n
}

// desktopCommand returns the command that shows a notification. The texts are
// arguments of their own, after those that are options, and never part of a script.
func desktopCommand(look func(string) (string, error)) func(title, text string) []string {
	if program, err := look("notify-send"); err == nil {
		return func(title, text string) []string {
			return []string{program, "--app-name=thoughtgate", "--", title, text}
		}
	}
	if program, err := look("osascript"); err == nil {
		return func(title, text string) []string {
			return []string{
				program, "-e", "on run argv", "-e", "display notification (item 2 of argv) with title (item 1 of argv)", "-e", "end run",
				title, text,
			}
		}
	}
	return nil
}

// notify shows a call, unless too many others are new as well.
func (n *notifier) notify(a casefile.Approval) {
	if n.command == nil {
		return
	}
	select {
	case n.queue <- a:
	default: // the screen shows them all
	}
}

// run shows one notification after the other.
func (n *notifier) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-n.queue:
			n.show(ctx, a)
		}
	}
}

func (n *notifier) show(ctx context.Context, a casefile.Approval) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	argv := n.command(notification(a))
	_ = exec.CommandContext(ctx, argv[0], argv[1:]...).Run() //nolint:gosec // the texts are harmless; a notification that fails is not missed
}

// notification returns what is said of a call. Desktops read markup and escapes in
// texts, so only plain letters get there. The text begins with words of ours, so it
// is no option either.
func notification(a casefile.Approval) (title, text string) {
	return "ThoughtGate: a call waits for approval",
		"Tool " + harmless(a.Tool, 60) + " for " + harmless(requester(a), 40) + ": " + string(a.Hints.Risk())
}

// harmless returns foreign text with a question mark for everything but plain
// letters, digits and a few signs.
func harmless(text string, limit int) string {
	return shorten(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" ._-/@", r) {
			return r
		}
		return '?'
	}, text), limit)
}
