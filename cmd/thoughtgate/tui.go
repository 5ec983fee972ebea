package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/internal/approval/client"
	"github.com/thoughtgate/thoughtgate-go/internal/review"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A tui is the live screen of "approvals watch". Its messages are keys, events of the gate,
// and ticks of a clock.
type tui struct {
	ctx     context.Context // bubbletea passes no context
	gate    *client.Client
	url     string // of the gate
	colours bool

	width, height int
	now           time.Time

	calls      []review.Approval // pending, with the least time left first
	selected   task.ID
	moved      bool   // the approver has selected a call; before, the most urgent one is selected
	connection string // the problem with the connection; empty when connected
	notice     string // the result of the last key
	open       *detail
	prompt     *prompt
	failure    error // the error that ended the screen
}

// Messages with events and answers of the gate.
type (
	eventMsg     client.Event
	lostMsg      string
	connectedMsg struct{}
	refusedMsg   struct{ err error }
	shownMsg     struct {
		id      task.ID
		call    review.Approval
		context review.Context
		err     error
	}
	decidedMsg struct {
		id      task.ID
		what    approval.Decision
		after   review.Approval
		problem string
	}
	tickMsg time.Time
)

// runTUI shows the screen until the approver quits.
func runTUI(ctx context.Context, cfg client.Config, notify func(review.Approval)) error {
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
		ctx: ctx, gate: gate, url: cfg.URL, now: now, connection: "connecting",
		colours: newScreen(os.Stdout).colours,
	}
	program = tea.NewProgram(model, tea.WithContext(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		follow(ctx, gate, program.Send, notifyNew(now, notify))
	}()
	_, err = program.Run()
	stop()
	<-done
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil || errors.Is(err, tea.ErrInterrupted) {
		err = nil // the approver quit
	}
	return errors.Join(err, model.failure)
}

// notifyNew returns a function that calls notify once for each call made after since.
func notifyNew(since time.Time, notify func(review.Approval)) func(review.Approval) {
	known := map[task.ID]bool{}
	return func(a review.Approval) {
		if !known[a.ID] && a.CreatedAt.After(since) {
			notify(a)
		}
		known[a.ID] = true
	}
}

// retryInterval is the time between attempts to reach the gate.
const retryInterval = 2 * time.Second

// follow sends the events of the gate until ctx ends or the gate refuses the client.
func follow(ctx context.Context, gate *client.Client, send func(tea.Msg), pending func(review.Approval)) {
	for ctx.Err() == nil {
		for e, err := range gate.Watch(ctx) {
			refused, isRefusal := errors.AsType[*client.Error](err)
			switch {
			case isRefusal && refused.Status < 500:
				send(refusedMsg{clientError(err)})
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
		case <-time.After(retryInterval):
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
		t.open.markSeen(t.bodyHeight())
	}
	return t, cmd
}

func (t *tui) handle(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		t.width, t.height = msg.Width, msg.Height
		if t.open != nil {
			t.open.wrapLines(t.width)
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
		return t.handleEvent(msg)
	}
	return nil
}

// handleEvent handles a message about the gate.
func (t *tui) handleEvent(msg tea.Msg) tea.Cmd {
	switch msg := msg.(type) {
	case lostMsg:
		t.connection = "gate not reachable: " + string(msg)
	case connectedMsg:
		t.connection = ""
		return t.reload()
	case refusedMsg:
		t.failure = msg.err
		return tea.Quit
	case eventMsg:
		return t.applyEvent(client.Event(msg))
	case shownMsg:
		t.shown(msg)
	case decidedMsg:
		return t.decided(msg)
	}
	return nil
}

// applyEvent updates the list of pending calls. If the open call is the one of the event, it updates
// that, too.
func (t *tui) applyEvent(e client.Event) tea.Cmd {
	a := e.Approval
	at := t.index()
	t.calls = slices.DeleteFunc(t.calls, func(c review.Approval) bool { return c.ID == a.ID })
	if e.Kind == client.Pending {
		t.calls = append(t.calls, a)
		sortByTimeLeft(t.calls)
	}
	if !t.moved {
		at = 0
	}
	if len(t.calls) > 0 && (!t.moved || t.index() < 0) { // none was selected, or it has left the list: select the call in its place
		t.selected = t.calls[min(max(at, 0), len(t.calls)-1)].ID
	}
	if t.open == nil || t.open.call.ID != a.ID {
		return nil
	}
	if e.Kind == client.Pending {
		t.open.progress(a)
		return nil
	}
	return t.reload() // no longer pending: show the outcome, or that it is gone
}

// index returns the index of the selected call, or -1.
func (t *tui) index() int {
	return slices.IndexFunc(t.calls, func(a review.Approval) bool { return a.ID == t.selected })
}

// reload loads the open call again.
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

// shown shows a loaded call.
func (t *tui) shown(msg shownMsg) {
	if t.open == nil || t.open.call.ID != msg.id {
		return
	}
	if msg.err != nil {
		t.notice = fmt.Sprintf("cannot be shown: %v", clientError(msg.err))
		return
	}
	t.open.show(msg.call, msg.context, t.colours)
	t.open.wrapLines(t.width)
	switch p := t.prompt; {
	case msg.call.State != task.InputRequired:
		t.prompt = nil
	//mutate:false TestPromptClosesWhenTheCallChanges an answer counts for a version of the call that was not on the screen
	case p != nil && !p.sent && p.shown != msg.call.ShownDigest:
		t.open.reason, t.prompt = p.reason, nil
		t.notice = t.paint(yellow, "the call has changed; read it again before you decide")
	}
}

// key handles a key.
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

// The smallest terminal on which calls can be decided.
const (
	minWidth  = 40
	minHeight = 10
)

// tooSmall reports whether the terminal is too small to show a call.
func (t *tui) tooSmall() bool { return t.width < minWidth || t.height < minHeight }

// bodyHeight returns the number of lines between the head and the foot.
func (t *tui) bodyHeight() int {
	if t.tooSmall() {
		return 0
	}
	return t.height - 5
}

func (t *tui) paint(c colour, text string) string {
	return (&screen{colours: t.colours}).paint(c, text)
}

// listKey handles a key while the list is shown.
func (t *tui) listKey(key string) tea.Cmd {
	t.notice, t.moved = "", true
	at := t.index()
	switch key {
	case "q", "esc":
		return tea.Quit
	case "up", "k":
		at--
	case "down", "j":
		at++
	case "home", "g":
		at = 0
	case "end", "G":
		at = len(t.calls) - 1
	case "enter", "right", "l":
		if at < 0 {
			return nil
		}
		t.open = &detail{call: t.calls[at]}
		return t.load(t.selected)
	}
	if len(t.calls) > 0 {
		t.selected = t.calls[min(max(at, 0), len(t.calls)-1)].ID
	}
	return nil
}

// render returns the whole screen: a head, a body, and a foot with the last notice and the
// keys.
func (t *tui) render() string {
	if t.width == 0 {
		return "" // the size is not known yet
	}
	if t.tooSmall() {
		return ansi.Truncate(fmt.Sprintf("Please enlarge the terminal to %d×%d.", minWidth, minHeight), t.width, "")
	}
	head, body, keys := t.list()
	if t.open != nil {
		head, body, keys = t.detail()
	}
	lines := append([]string{t.title(), head}, body...)
	for len(lines) < t.height-3 {
		lines = append(lines, "")
	}
	lines = append(lines[:t.height-3], t.foot(keys)...)
	for i := range lines {
		lines[i] = ansi.Truncate(lines[i], t.width, "…")
	}
	return strings.Join(lines, "\n")
}

func (t *tui) title() string {
	state := t.paint(green, "connected")
	if t.connection != "" {
		state = t.paint(red, t.connection)
	}
	return fmt.Sprintf("ThoughtGate  %d waiting  %s  %s", len(t.calls), oneLine(t.url, 60), state)
}

// foot returns the last three lines.
func (t *tui) foot(keys string) []string {
	if t.prompt != nil {
		return t.prompt.lines(t)
	}
	return []string{strings.Repeat("─", t.width), t.notice, t.paint(dim, keys)}
}

// list returns the lines of the list.
func (t *tui) list() (head string, body []string, keys string) {
	tool, from := t.widths()
	head = fmt.Sprintf("  %-15s %6s  %-*s %-*s %s", "RISK", "LEFT", tool, "TOOL", from, "REQUESTER", "ARGUMENTS")
	if len(t.calls) == 0 {
		body = []string{"", "  No calls are waiting for a decision."}
	}
	height := t.bodyHeight()
	first := max(0, min(t.index()-height/2, len(t.calls)-height))
	last := min(first+height, len(t.calls))
	for i := first; i < last; i++ {
		body = append(body, t.row(t.calls[i], tool, from))
	}
	keys = "↑↓ select  enter open  q quit"
	if len(body) < len(t.calls) {
		keys = fmt.Sprintf("calls %d-%d of %d, most urgent first  %s", first+1, last, len(t.calls), keys)
	}
	return t.paint(dim, head), body, keys
}

// widths returns the columns that the names of tools and requesters take: no more than they need,
// because the arguments get the rest.
func (t *tui) widths() (tool, from int) {
	tool, from = len("TOOL"), len("REQUESTER")
	for _, a := range t.calls {
		tool, from = max(tool, ansi.StringWidth(toolText(a))), max(from, ansi.StringWidth(requester(a)))
	}
	return min(tool, 22), min(from, 12)
}

// toolText returns the name of the tool, and how many have approved.
func toolText(a review.Approval) string {
	return strings.TrimSpace(markedName(a.Tool, 60) + approvedSoFar(a))
}

// row returns one line of the list.
func (t *tui) row(a review.Approval, tool, from int) string {
	mark := "  "
	if a.ID == t.selected {
		mark = "> "
	}
	return mark + t.risk(a) + fmt.Sprintf(" %6s  %s %s %s", formatDuration(a.ExpiresAt.Sub(t.now)), cell(toolText(a), tool), cell(requester(a), from), argumentCell(a))
}

// risk returns the risk of a call in a cell before the tool's name, so that a long name
// cannot hide it.
func (t *tui) risk(a review.Approval) string {
	r := a.Hints.Risk()
	text := cell(string(r), 15)
	if r == review.RiskDestroys {
		return t.paint(red, text)
	}
	return text
}

// cell cuts or pads text to exactly this many columns.
func cell(text string, columns int) string {
	text = ansi.Truncate(text, columns, "…")
	return text + strings.Repeat(" ", max(0, columns-ansi.StringWidth(text)))
}

// A detail is the open call, and how much of it was on the screen.
type detail struct {
	call    review.Approval // from the gate
	context review.Context  // from the gate
	loaded  bool            // with all arguments
	text    string          // everything to show
	lines   []string        // text, broken to the width of the screen
	seen    []bool          // the lines that were on the screen
	allSeen bool            // all lines were on the screen at some width
	top     int             // the first line on the screen
	reason  string          // typed before
}

// show replaces the call. If its content differs, all of it counts as unseen.
func (d *detail) show(a review.Approval, around review.Context, colours bool) {
	s, now := &screen{colours: colours}, time.Now()
	text := s.cautions(around) + s.details(a, now) + background(around, now)
	if a.ShownDigest != d.call.ShownDigest || a.State != d.call.State {
		d.allSeen, d.top = false, 0
	}
	d.call, d.context, d.text, d.loaded = a, around, strings.TrimRight(text, "\n"), true
}

// progress updates a call that is still pending.
func (d *detail) progress(a review.Approval) {
	d.call.Approvals, d.call.Agent, d.call.ExpiresAt = a.Approvals, a.Agent, a.ExpiresAt
}

// wrapLines breaks the text into lines. They count as unseen, unless all were seen before.
func (d *detail) wrapLines(width int) {
	d.lines = breakLines(d.text, width)
	d.seen = make([]bool, len(d.lines))
	d.top = max(0, min(d.top, len(d.lines)-1))
}

// markSeen marks the lines on the screen as seen.
func (d *detail) markSeen(height int) {
	if !d.loaded || height == 0 {
		return
	}
	d.top = max(0, min(d.top, len(d.lines)-height))
	for i := d.top; i < min(d.top+height, len(d.lines)); i++ {
		d.seen[i] = true
	}
	lines, _ := d.unseen()
	d.allSeen = d.allSeen || lines == 0
}

// unseen returns the number of unseen lines, and their bytes.
func (d *detail) unseen() (lines, bytes int) {
	if d.allSeen {
		return 0, 0
	}
	for i, seen := range d.seen {
		if !seen {
			lines, bytes = lines+1, bytes+len(ansi.Strip(d.lines[i]))
		}
	}
	return lines, bytes
}

// detail returns the lines of the open call.
func (t *tui) detail() (head string, body []string, keys string) {
	d := t.open
	a := d.call
	head = t.risk(a) + " " + t.paint(yellow, stateName(a)+approvedSoFar(a))
	if a.State == task.InputRequired {
		head += fmt.Sprintf("  %s left", formatDuration(a.ExpiresAt.Sub(t.now)))
	}
	head += "  " + markedName(a.Tool, 60)
	if !d.loaded {
		return head, []string{"", "  Asking the gate…"}, "esc back"
	}
	end := min(d.top+t.bodyHeight(), len(d.lines))
	body = d.lines[d.top:end]
	keys = fmt.Sprintf("lines %d-%d of %d  space ↑↓ scroll  esc back", d.top+1, end, len(d.lines))
	if a.State == task.InputRequired {
		keys = fmt.Sprintf("lines %d-%d of %d  space ↑↓ scroll  a approve  r reject  c correct  esc back", d.top+1, end, len(d.lines))
		if unseen, _ := d.unseen(); unseen > 0 {
			keys = fmt.Sprintf("lines %d-%d of %d, %d not seen  space ↑↓ scroll  r reject  esc back", d.top+1, end, len(d.lines), unseen)
		}
	}
	return head, body, keys
}

// detailKey handles a key while a call is open.
func (t *tui) detailKey(key string) tea.Cmd {
	d := t.open
	notice := t.notice
	t.notice = ""
	switch key {
	case "esc", "q", "left", "h":
		t.open = nil
	case "up", "k":
		d.top--
	case "down", "j":
		d.top++
	case "pgup", "b":
		d.top -= t.bodyHeight()
	case "pgdown", "space", "f":
		d.top += t.bodyHeight()
	case "home", "g":
		d.top = 0
	case "end", "G":
		d.top = len(d.lines)
	case "a", "w", "r":
		t.ask(key)
	case "c":
		t.notice = "To correct it: thoughtgate approvals reject " + string(d.call.ID.Short()) + " --correct '{…}'"
	default:
		t.notice = notice // keeps it, for example if enter was pressed twice for a decision
	}
	return nil
}

// ask opens the prompt for a decision, unless the call is not pending or not all seen.
func (t *tui) ask(key string) {
	d := t.open
	lines, bytes := d.unseen()
	switch {
	case !d.loaded:
		t.notice = "the call is not loaded yet"
	case d.call.State != task.InputRequired:
		t.notice = "nothing to decide"
	case key == "r":
		t.prompt = newPrompt(d, approval.Reject, "Reject")
	case d.context.Objection != "":
		t.notice = t.paint(yellow, "you may not approve this: "+oneLine(d.context.Objection, maxCell))
	case lines == 0:
		t.prompt = newPrompt(d, approval.Approve, "Approve")
	case key == "a":
		t.notice = t.paint(yellow, fmt.Sprintf("%s not seen yet: read on with space, or press w to approve without reading", count(lines, "line")))
	default:
		t.prompt = newPrompt(d, approval.Approve, "Approve WITHOUT READING "+count(lines, "line"))
		t.prompt.unread = bytes
	}
}
