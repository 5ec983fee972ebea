package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/casefile"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A tui is the screen on which an approver decides held calls. Each message is a
// key, an event of the gate, or a second that has passed.
type tui struct {
	ctx     context.Context //nolint:containedctx // the interface of bubbletea has none
	gate    *client.Client
	where   string // the gate's address
	colours bool

	width, height int
	now           time.Time

	calls    []casefile.Approval // that are pending, with the least time left first
	selected task.ID
	link     string // what is wrong with the connection
	notice   string // what came of the last key
	open     *detail
	prompt   *prompt
	failure  error // why the screen ended
}

// Messages with what the gate has answered.
type (
	eventMsg     client.Event
	lostMsg      string
	connectedMsg struct{}
	refusedMsg   struct{ err error }
	shownMsg     struct {
		id      task.ID
		now     casefile.Approval
		context casefile.Context
		err     error
	}
	decidedMsg struct {
		id      task.ID
		what    approval.Decision
		after   casefile.Approval
		problem string
	}
	tickMsg time.Time
)

// runTUI shows the screen until the approver leaves it.
func runTUI(ctx context.Context, cfg client.Config, notify func(casefile.Approval)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var program *tea.Program
	cfg.Connected = func() { program.Send(connectedMsg{}) }
	gate, err := client.New(cfg)
	if err != nil {
		return err
	}
	now := time.Now()
	model := &tui{
		ctx: ctx, gate: gate, where: cfg.URL, now: now, link: "connecting",
		colours: newScreen(os.Stdout).colours,
	}
	program = tea.NewProgram(model, tea.WithContext(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(ctx, gate, program.Send, newcomers(now, notify))
	}()
	_, err = program.Run()
	stop()
	<-done
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		err = nil // the approver has stopped the program
	}
	return errors.Join(err, model.failure)
}

// newcomers calls notify once for each call that was made after a time.
func newcomers(since time.Time, notify func(casefile.Approval)) func(casefile.Approval) {
	known := map[task.ID]bool{}
	return func(a casefile.Approval) {
		if !known[a.ID] && a.CreatedAt.After(since) {
			notify(a)
		}
		known[a.ID] = true
	}
}

// pause is how long to wait before a gate is tried again that was never reached.
const pause = 2 * time.Second

// follow sends the events of the gate, for as long as ctx lasts and the gate does not
// refuse.
func follow(ctx context.Context, gate *client.Client, send func(tea.Msg), pending func(casefile.Approval)) {
	for ctx.Err() == nil {
		for e, err := range gate.Watch(ctx) {
			refused, isRefusal := errors.AsType[*client.Error](err)
			switch {
			case isRefusal && refused.Status < 500:
				send(refusedMsg{explained(err)})
				return
			case err != nil:
				send(lostMsg(oneLine(err.Error(), maxCell)))
			default:
				if e.Kind == client.Pending {
					pending(e.Approval)
				}
				send(eventMsg(e))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func tick() tea.Cmd {
	return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// Init implements tea.Model.
func (t *tui) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (t *tui) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	cmd := t.handle(msg)
	if t.open != nil {
		t.open.see(t.room())
	}
	return t, cmd
}

func (t *tui) handle(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		t.width, t.height = msg.Width, msg.Height
		if t.open != nil {
			t.open.layOut(t.width)
		}
	case tickMsg:
		t.now = time.Time(msg)
		return tick()
	case tea.KeyPressMsg:
		return t.key(msg)
	case tea.PasteMsg:
		if t.prompt != nil {
			t.prompt.insert(msg.Content)
		}
	default:
		return t.hear(msg)
	}
	return nil
}

// hear handles an event of the gate.
func (t *tui) hear(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case lostMsg:
		t.link = "the gate does not answer: " + string(msg)
	case connectedMsg:
		t.link = ""
		return t.reload()
	case refusedMsg:
		t.failure = msg.err
		return tea.Quit
	case eventMsg:
		return t.event(client.Event(msg))
	case shownMsg:
		t.shown(msg)
	case decidedMsg:
		return t.decided(msg)
	}
	return nil
}

// event brings the list up to date.
func (t *tui) event(e client.Event) tea.Cmd {
	a := e.Approval
	at := t.index()
	t.calls = slices.DeleteFunc(t.calls, func(c casefile.Approval) bool { return c.ID == a.ID })
	if e.Kind == client.Pending {
		t.calls = append(t.calls, a)
		sortByTimeLeft(t.calls)
	}
	if t.index() < 0 && len(t.calls) > 0 { // the selected one is gone: select its neighbour
		t.selected = t.calls[min(max(at, 0), len(t.calls)-1)].ID
	}
	if t.open == nil || t.open.call.ID != a.ID {
		return nil
	}
	if e.Kind == client.Pending {
		t.open.progress(a)
		return nil
	}
	return t.reload() // to show what became of it
}

// index returns where the selected call is in the list, or -1.
func (t *tui) index() int {
	return slices.IndexFunc(t.calls, func(a casefile.Approval) bool { return a.ID == t.selected })
}

// reload asks the gate for the call that is open.
func (t *tui) reload() tea.Cmd {
	if t.open == nil {
		return nil
	}
	return t.load(t.open.call.ID)
}

func (t *tui) load(id task.ID) tea.Cmd {
	return func() tea.Msg {
		a, err := t.gate.Show(t.ctx, id)
		if err != nil {
			return shownMsg{id: id, err: err}
		}
		context, err := t.gate.Context(t.ctx, id)
		return shownMsg{id, a, context, err}
	}
}

// shown puts a call on the screen.
func (t *tui) shown(msg shownMsg) {
	if t.open == nil || t.open.call.ID != msg.id {
		return
	}
	if msg.err != nil {
		t.notice = fmt.Sprintf("cannot be shown: %v", explained(msg.err))
		return
	}
	t.open.show(msg.now, msg.context, t.colours)
	t.open.layOut(t.width)
	switch p := t.prompt; {
	case msg.now.State != task.InputRequired:
		t.prompt = nil
	case p != nil && !p.sent && p.shown != msg.now.ShownDigest:
		t.open.reason, t.prompt = p.reason, nil
		t.notice = t.paint(yellow, "the call is shown differently now; read it again before you decide")
	}
}

// key does what a key says.
func (t *tui) key(k tea.KeyPressMsg) tea.Cmd {
	if k.String() == "ctrl+c" {
		return tea.Quit
	}
	switch {
	case t.prompt != nil:
		return t.promptKey(k)
	case t.open != nil:
		return t.detailKey(k.String())
	default:
		return t.listKey(k.String())
	}
}

// View implements tea.Model.
func (t *tui) View() tea.View {
	v := tea.NewView(t.render())
	v.AltScreen = true
	v.WindowTitle = fmt.Sprintf("(%d) ThoughtGate", len(t.calls))
	return v
}
