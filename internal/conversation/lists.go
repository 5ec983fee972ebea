package conversation

import (
	"github.com/thoughtgate/thoughtgate-go/internal/catalog"
	"github.com/thoughtgate/thoughtgate-go/internal/mcp"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask/schema"
)

// lists rewrites the lists of tools, prompts, resources and templates for a client.
type lists struct {
	sender *sender
	out    responder
}

func (r *Request) lists() lists { return lists{sender: &r.sender, out: r.out} }

// show stores a list in the catalog, and returns it filtered for the client.
func (l lists) show(method, cursor string, answer *jsonrpc.Message) []byte {
	if !answer.Result.Present() {
		return answer.Raw
	}
	page := catalog.Page{Method: method, Cursor: cursor, Result: answer.Result.Bytes}
	l.out.gateway.cfg.Catalog.LearnPage(l.out.reply.Context(), l.sender.client.Identity(), page, mcp.Entries(answer, method))
	return l.filtered(method, answer)
}

func (l lists) filtered(method string, answer *jsonrpc.Message) []byte {
	view := l.out.gateway.cfg.Catalog.View(l.sender.client.Identity(), method)
	defer func() {
		view.Record(l.out.reply.Context(), !answer.Result.Member("nextCursor").Present())
	}()
	return mcp.RewriteList(answer, method, func(entry mcp.ListEntry) mcp.View {
		hidden, support := view.Entry(entry.Name, entry.URI, entry.Entry)
		if l.out.era == mcp.Modern {
			hidden = hidden || l.cannotBeCalled(entry)
			support = "" // modern tools have no such member
		}
		return mcp.View{Hidden: hidden, TaskSupport: support}
	})
}

// maxLoggedName is how many bytes of a name tell apart lines of the log.
const maxLoggedName = 128

// cannotBeCalled reports whether modern clients cannot call a tool because its definition
// requires headers that cannot be sent. Such a tool is left out of lists, unless the transport
// has no headers.
func (l lists) cannotBeCalled(entry mcp.ListEntry) bool {
	if l.sender.client.Transport().Header == nil {
		return false
	}
	_, err := mcp.Mirrors(entry.Entry)
	if err != nil {
		l.out.gateway.cfg.Log.WarnContext(l.sender.repeatable(l.out.reply.Context(), l.sender.upstream()+" "+entry.Name[:min(len(entry.Name), maxLoggedName)]), "tool left out of the list",
			"upstream", l.sender.upstream(), "tool", entry.Name, "err", err)
	}
	return err != nil
}

// cached returns the last known list if the upstream fails to return it.
func (l lists) cached(method, cursor string) []byte {
	result, ok := l.out.gateway.cfg.Catalog.CachedPage(l.sender.client.Identity(), method, cursor)
	if !ok {
		return nil
	}
	answer, err := l.sender.read(jsonrpc.AppendResult(nil, l.out.id, result))
	if err != nil {
		return nil
	}
	return l.filtered(method, answer)
}

// handshake stores what client and upstream have declared in the handshake, and returns the
// upstream's answer with the capabilities of the gate.
func (l lists) handshake(facts catalog.Handshake, answer *jsonrpc.Message) []byte {
	if !answer.Result.Present() {
		return answer.Raw
	}
	client := l.sender.client.JoiningIdentity()
	if _, given := catalog.SessionIn(client.Key); given {
		l.out.gateway.sessions.set(client.Peer(), struct{}{})
	}
	support := schema.DetectServer(answer.Result.Member("capabilities").Bytes)
	facts.Tasks, facts.ListTasks, facts.Notifies = support.Call || support.Extension, support.List, support.Notify
	l.out.gateway.cfg.Catalog.LearnHandshake(l.out.reply.Context(), client, facts)
	return mcp.Declare(answer, l.out.era, mcp.Capabilities{
		Tasks: l.out.gateway.Holds(), ListTasks: client.Key != "", ListChanged: true,
	})
}
