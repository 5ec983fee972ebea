package conversation

import (
	"github.com/thoughtgate/thoughtgate-go/internal/gate"
	"github.com/thoughtgate/thoughtgate-go/internal/wire"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
)

// meet takes note of what the client said of itself, which is among facts, and of
// what the upstream can do for it.
func (r *Request) meet(facts gate.Facts, answer *jsonrpc.Message) []byte {
	if !answer.Result.Present() {
		return answer.Raw
	}
	client := r.client.Joining()
	if _, given := gate.SessionIn(client.Key); given {
		r.hub.sessions.add(client.Peer())
	}
	support := mcptask.DetectServer(answer.Result.Member("capabilities").Bytes)
	facts.Tasks, facts.ListTasks, facts.Notifies = support.Call || support.Extension, support.List, support.Notify
	r.hub.cfg.Gate.Meet(r.reply.Context(), client, facts)
	return wire.Declare(answer, r.era, wire.Abilities{
		Tasks: r.hub.Holds(), ListTasks: client.Key != "", ListChanged: true,
	})
}

// lists are the tools, prompts, resources and templates that a client sees.
type lists struct{ *Request }

// show returns a list as the client gets to see it.
func (l lists) show(method, cursor string, answer *jsonrpc.Message) []byte {
	if !answer.Result.Present() {
		return answer.Raw
	}
	page := gate.Page{Method: method, Cursor: cursor, Result: answer.Result.Bytes}
	l.hub.cfg.Gate.Learn(l.reply.Context(), l.client.From(), page, wire.Entries(answer, method))
	return l.viewed(method, answer)
}

func (l lists) viewed(method string, answer *jsonrpc.Message) []byte {
	view := l.hub.cfg.Gate.View(l.client.From(), method)
	defer func() {
		view.Done(l.reply.Context(), !answer.Result.Member("nextCursor").Present())
	}()
	return wire.RewriteList(answer, method, func(entry wire.Listed) wire.View {
		hidden, support := view.See(entry.Name, entry.URI, entry.Entry)
		if l.era == wire.Modern {
			hidden = hidden || l.uncallable(entry)
			support = "" // modern tools have no such member
		}
		return wire.View{Hidden: hidden, TaskSupport: support}
	})
}

// maxReason is how much of a name distinguishes lines of the log.
const maxReason = 128

// uncallable reports whether no modern client can call a tool, because its
// definition demands headers that cannot be sent. Such a tool is not listed. A
// transport without headers has nothing to demand.
func (l lists) uncallable(entry wire.Listed) bool {
	if l.client.Transport().Header == nil {
		return false
	}
	_, err := wire.Mirrors(entry.Entry)
	if err != nil {
		l.hub.cfg.Log.WarnContext(l.repeatable(l.reply.Context(), l.upstream()+" "+entry.Name[:min(len(entry.Name), maxReason)]), "tool left out of the list",
			"upstream", l.upstream(), "tool", entry.Name, "cause", err)
	}
	return err != nil
}

// remembered answers a list that the upstream fails to give with what it gave
// before.
func (l lists) remembered(method, cursor string) []byte {
	result, ok := l.hub.cfg.Gate.Remembered(l.client.From(), method, cursor)
	if !ok {
		return nil
	}
	answer, err := l.read(jsonrpc.AppendResult(nil, l.id, result))
	if err != nil {
		return nil
	}
	return l.viewed(method, answer)
}
