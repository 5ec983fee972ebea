// Package workload has the messages of the measurements: tools/call requests with known bytes,
// and the expected answers. The upstream and the load generator both use it, so each side can
// check every byte and detect changes by a proxy.
package workload

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A Kind is one kind of call.
type Kind string

// The kinds of calls. Each is also the name of the called tool.
const (
	JSON    Kind = "echo_json"   // 1 KiB each way, answered as JSON
	SSE     Kind = "echo_sse"    // like JSON, answered as an event stream of one event
	Modern  Kind = "echo_modern" // like JSON, in the form of 2026-07-28
	BigJSON Kind = "big_json"    // one JSON answer of many blocks, with a length
	BigSSE  Kind = "big_sse"     // an event stream of many events of one block, in chunks
	Upload  Kind = "put_json"    // a request of many blocks, with the answer of JSON
)

// BlockSize is the length of one block of a big answer.
const BlockSize = 64 << 10

// messageSize is the length of the body of a small request and of a small answer.
const messageSize = 1 << 10

const (
	idDigits = 10 // every id has this many, so that a new id does not change the length
	firstID  = 1_000_000_000
)

// Content types of the answers.
const (
	TypeJSON = "application/json"
	TypeSSE  = "text/event-stream"
)

// ContentType returns the type of the answer to a call of kind k.
func (k Kind) ContentType() string {
	if k == SSE || k == BigSSE {
		return TypeSSE
	}
	return TypeJSON
}

// Short returns the kind's name without the tool's verb.
func (k Kind) Short() string {
	_, short, _ := strings.Cut(string(k), "_")
	return short
}

// An Exchange is a request with the expected answer. It belongs to one connection, because
// [Exchange.Renumber] changes it in place.
type Exchange struct {
	Request []byte // the whole HTTP request
	Answer  Body
	Type    string // content type of the answer

	ids [2][]byte // the bytes of the id in Request and in Answer
}

// New returns a call of kind k to the MCP endpoint at host. blocks is the length of a big
// answer or request, and is ignored for small ones.
func New(k Kind, host string, blocks int) *Exchange {
	body := requestBody(k, blocks)
	request := append(requestHead(k, host, len(body)), body...)
	answer := Answer(k, blocks)
	return &Exchange{
		Request: request,
		Answer:  answer,
		Type:    k.ContentType(),
		ids:     [2][]byte{idSlot(request), answer.idSlot()},
	}
}

// Renumber replaces the id of the request and its answer by the n-th id.
func (e *Exchange) Renumber(n int) {
	for _, slot := range e.ids {
		putID(slot, n)
	}
}

func putID(slot []byte, n int) {
	strconv.AppendInt(slot[:0], int64(firstID+n%firstID), 10)
}

// idSlot returns the bytes of the id in text. The texts of this package have exactly one.
func idSlot(text []byte) []byte {
	const name = `"id":`
	at := bytes.Index(text, []byte(name))
	if at < 0 {
		return nil
	}
	at += len(name)
	if at+idDigits > len(text) {
		return nil
	}
	return text[at : at+idDigits : at+idDigits]
}

func requestHead(k Kind, host string, length int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST /mcp HTTP/1.1\r\nHost: %s\r\n", host)
	b.WriteString("User-Agent: thoughtgate-bench\r\nContent-Type: application/json\r\n")
	b.WriteString("Accept: application/json, text/event-stream\r\n")
	if k == Modern {
		fmt.Fprintf(&b, "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: %s\r\n", k)
	} else {
		b.WriteString("MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: 5f0c2b64-7d1c-4b8e-9a53-0d6f4f6f9f11\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n", length)
	return b.Bytes()
}

// requestBody has strings, escapes, numbers and nesting, because they affect the speed of a
// scanner.
func requestBody(k Kind, blocks int) []byte {
	head := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"blocks":%d,`, firstID, k, blocks)
	head += `"path":"/srv/files/2026/reports/quarter-3.md","range":{"from":1,"to":4096.5},"tags":["draft","finance",null,true],"text":"`
	tail := `"},"_meta":{"progressToken":"p-17"}}}`
	if k == Modern {
		tail = `"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
			`"io.modelcontextprotocol/clientCapabilities":{},` +
			`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"}}}}`
	}
	size := messageSize - len(head) - len(tail)
	if k == Upload {
		size += blocks * BlockSize
	}
	return []byte(head + filler(size) + tail)
}

// filler returns n bytes of content for a JSON string.
func filler(n int) string {
	const text = `The north bridge carries 4,120 cars a day.\nIts \"winter\" load is lower, see C:\\data\\bridges; the caf\u00e9 Zoë closes at 18:00. `
	filled := strings.Repeat(text, n/len(text))
	return filled + strings.Repeat(".", n-len(filled))
}
