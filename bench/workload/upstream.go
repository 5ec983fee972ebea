package workload

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Call is a request as the upstream reads it.
type Call struct {
	Kind   Kind
	Number int // see [Exchange.Renumber]
	Blocks int
}

// ErrForeign reports a body that this package did not create, or that was changed in transit.
var ErrForeign = errors.New("not a request of this benchmark, or changed on its way")

// An Upstream answers the calls of this package. It has a copy of every known request, to
// compare it with the received one.
type Upstream struct {
	known map[Kind]known
}

type known struct {
	request []byte // body
	answer  Body
}

// NewUpstream returns an Upstream with every small kind.
func NewUpstream() *Upstream {
	u := &Upstream{known: map[Kind]known{}}
	for _, k := range []Kind{JSON, SSE, Modern} {
		u.known[k] = known{request: requestBody(k, 0), answer: Answer(k, 0)}
	}
	return u
}

// Own returns the answer to a request of the gate itself: the gate asks what the server speaks, lists
// the tools before it runs a held call, and gives that call a new id.
func (u *Upstream) Own(body []byte) (Body, error) {
	var request struct {
		ID     jsontext.Value `json:"id"`
		Method string         `json:"method"`
		Params struct {
			Name      Kind `json:"name"`
			Arguments struct {
				Blocks int `json:"blocks"`
			} `json:"arguments"`
		} `json:"params"`
	}
	if err := json.Unmarshal(body, &request); err != nil {
		return Body{}, ErrForeign
	}
	switch {
	case request.Method == "server/discover":
		return Body{Head: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`, request.ID)}, nil
	case request.Method == "tools/list":
		tools := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":%q,"inputSchema":{"type":"object"}}]}}`, request.ID, BigJSON)
		return Body{Head: tools}, nil
	case request.Params.Name == BigJSON:
		answer := Answer(BigJSON, request.Params.Arguments.Blocks)
		answer.Head = bytes.Replace(answer.Head, []byte(strconv.Itoa(firstID)), request.ID, 1)
		return answer, nil
	default:
		return Body{}, ErrForeign
	}
}

// Read compares every byte of body, and returns the call in it.
func (u *Upstream) Read(body []byte) (Call, error) {
	slot := idSlot(body)
	if slot == nil {
		return Call{}, ErrForeign
	}
	id, err := strconv.Atoi(string(slot))
	if err != nil || id < firstID {
		return Call{}, ErrForeign
	}
	call := Call{Kind: Kind(between(body, `"name":"`, `"`)), Number: id - firstID}
	if call.Blocks, err = strconv.Atoi(between(body, `"blocks":`, ",")); err != nil {
		return Call{}, ErrForeign
	}
	k, ok := u.known[call.Kind]
	if !ok || call.Blocks != 0 {
		k.request = requestBody(call.Kind, call.Blocks)
	}
	if !equalButID(body, k.request) {
		return Call{}, ErrForeign
	}
	return call, nil
}

// Answer returns the body of the answer to c. The caller may keep it.
func (u *Upstream) Answer(c Call) Body {
	var answer Body
	if k, ok := u.known[c.Kind]; ok {
		answer = Body{Head: bytes.Clone(k.answer.Head)}
	} else {
		answer = Answer(c.Kind, c.Blocks)
	}
	putID(answer.idSlot(), c.Number)
	return answer
}

func equalButID(got, want []byte) bool {
	if len(got) != len(want) {
		return false
	}
	at := bytes.Index(want, []byte(strconv.Itoa(firstID)))
	return bytes.Equal(got[:at], want[:at]) && bytes.Equal(got[at+idDigits:], want[at+idDigits:])
}

// between returns the text of body after the first start and before end.
func between(body []byte, start, end string) string {
	_, rest, _ := bytes.Cut(body, []byte(start))
	value, _, _ := bytes.Cut(rest, []byte(end))
	return string(value)
}
