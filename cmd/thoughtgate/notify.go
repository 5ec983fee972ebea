package main

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
)

// A notifier shows desktop notifications about new calls.
type notifier struct {
	command func(title, text string) []string // nil if no program is installed
	queue   chan review.Approval
}

// newNotifier returns a notifier that runs until ctx ends.
func newNotifier(ctx context.Context, look func(string) (string, error)) *notifier {
	n := &notifier{command: desktopCommand(look), queue: make(chan review.Approval, 4)}
	if n.command != nil {
		go n.run(ctx)
	}
	return n
}

// desktopCommand returns the command that shows a notification. The texts are separate
// arguments after the options, and never part of a script.
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

// notify queues a notification, or drops it if the queue is full.
func (n *notifier) notify(a review.Approval) {
	if n.command == nil {
		return
	}
	select {
	case n.queue <- a:
	default: // the screen shows the call anyway
	}
}

// run shows the queued notifications.
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

func (n *notifier) show(ctx context.Context, a review.Approval) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	argv := n.command(notification(a))
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...) // see harmless
	cmd.Env = new(config.Config).WrappedEnviron(os.Environ())
	_ = cmd.Run() // notifications are optional
}

// notification returns the texts for a call. Desktops interpret markup and escapes, so the
// texts contain only plain letters. They begin with a fixed word, so that they cannot be
// taken for options.
func notification(a review.Approval) (title, text string) {
	return "ThoughtGate: a call waits for approval",
		"Tool " + harmless(a.Tool, 60) + " for " + harmless(requester(a), 40) + ": " + string(a.Hints.Risk())
}

// harmless replaces all characters of foreign text other than ASCII letters, digits and a
// few signs by question marks.
func harmless(text string, limit int) string {
	return shorten(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" ._-/@", r) {
			return r
		}
		return '?'
	}, text), limit)
}
