package gate

import (
	"context"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/thoughtgate/thoughtgate-go/internal/policy"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

const (
	methodComplete = "completion/complete"
	methodListen   = "subscriptions/listen"
)

// acted are the methods that the gate acts on, besides those that policy governs.
var acted = map[string]bool{
	methodComplete: true, methodListen: true, "initialize": true, "server/discover": true, "notifications/cancelled": true,
	listTools: true, "prompts/list": true, "resources/list": true, "resources/templates/list": true,
}

// misspelled reports whether an upstream that is careless with methods may take
// one for another, which the gate acts on.
func misspelled(method string) bool {
	plain := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || policy.Invisible(r) {
			return -1
		}
		return r
	}, norm.NFKC.String(method))
	plain = strings.ToLower(plain)
	if plain == method {
		return false
	}
	_, governed := policy.Governed(plain)
	return governed || acted[plain] || strings.HasPrefix(plain, "tasks/")
}

// judgeReferences judges a message that refers to what policy governs, by each
// thing that it refers to. It passes only if policy would forward a request for
// each of them: there is no way to hold it.
func (g *Gate) judgeReferences(ctx context.Context, c Client, m *jsonrpc.Message, said policy.Session) (Judgement, error) {
	if misspelled(m.Method) {
		return Judgement{}, ErrMisspelled
	}
	questions, err := references(m)
	if err != nil {
		return Judgement{}, err
	}
	for _, q := range questions {
		if j := g.judge(ctx, c, q, Claims{Wish: policy.NoTask, Session: said}); j.Handling != policy.PassOn {
			j.Handling = policy.RefuseDenied
			return j, nil
		}
	}
	return Judgement{Handling: policy.PassOn}, nil
}

// references returns what m refers to, as if that was asked for.
func references(m *jsonrpc.Message) ([]question, error) {
	switch m.Method {
	case methodComplete:
		ref := m.Params.Member("ref")
		if hasVariant(m.Params.Value, "ref") || hasVariant(ref, "type", "name", "uri") {
			return nil, ErrUnnamed
		}
		return completed(ref)
	case methodListen:
		wanted := m.Params.Member("notifications")
		if hasVariant(m.Params.Value, "notifications") || hasVariant(wanted, "resourceSubscriptions") {
			return nil, ErrUnnamed
		}
		return subscribed(wanted.Member("resourceSubscriptions"))
	default:
		return nil, nil
	}
}

// hasVariant reports whether an object has a member whose name differs from one
// of the given names by case alone: some upstreams take it for that.
func hasVariant(object jsonrpc.Value, names ...string) bool {
	for member := range object.Members() {
		for _, name := range names {
			if member != name && strings.EqualFold(member, name) {
				return true
			}
		}
	}
	return false
}

// completed returns the prompt or the template whose arguments are completed.
func completed(ref jsonrpc.Value) ([]question, error) {
	kind, _ := ref.Member("type").Text()
	q, ok := question{method: "resources/read", template: true}, false
	switch kind {
	case "ref/prompt":
		q = question{method: "prompts/get"}
		q.name, ok = ref.Member("name").Text()
	case "ref/resource":
		q.name, ok = ref.Member("uri").Text()
	}
	if !ok {
		return nil, ErrUnnamed
	}
	return []question{q}, nil
}

// subscribed returns the resources in a list of URIs.
func subscribed(uris jsonrpc.Value) ([]question, error) {
	if !uris.Present() {
		return nil, nil
	}
	if !uris.IsArray() {
		return nil, ErrUnnamed
	}
	var questions []question
	for element := range uris.Elements() {
		uri, ok := element.Text()
		if !ok {
			return nil, ErrUnnamed
		}
		questions = append(questions, question{method: "resources/subscribe", name: uri})
	}
	return questions, nil
}
