package workload

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// A Body is the body of an answer: Head, then Block, repeated Blocks times, then Tail. A
// gibibyte needs only the memory of one block.
type Body struct {
	Head, Block, Tail []byte
	Blocks            int
}

// Answer returns the body of the answer to a call of kind k.
func Answer(k Kind, blocks int) Body {
	const (
		open  = `{"jsonrpc":"2.0","id":1000000000,"result":{`
		event = "event: message\ndata: "
	)
	switch k {
	case BigJSON:
		return Body{
			Head:   []byte(open + `"content":[{"type":"text","text":"`),
			Block:  []byte(filler(BlockSize)),
			Blocks: blocks,
			Tail:   []byte(`"}],"isError":false}}`),
		}
	case BigSSE:
		head := event + `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"`
		tail := `"}}` + "\n\n"
		return Body{
			Block:  []byte(head + filler(BlockSize-len(head)-len(tail)) + tail),
			Blocks: blocks,
			Tail:   []byte(event + open + `"content":[],"isError":false}}` + "\n\n"),
		}
	case SSE:
		return Body{Head: []byte(event + small(open+`"content":`) + "\n\n")}
	case Modern:
		return Body{Head: []byte(small(open + `"resultType":"complete","content":`))}
	default:
		return Body{Head: []byte(small(open + `"content":`))}
	}
}

func small(head string) string {
	head += `[{"type":"text","text":"`
	const tail = `"}],"isError":false}}`
	return head + filler(messageSize-len(head)-len(tail)) + tail
}

// FirstEvent is the only event of a stream opened with GET.
const FirstEvent = "id: 1\nevent: message\n" +
	`data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"open"}}` + "\n\n"

// StreamRequest returns the whole HTTP request that opens the n-th GET stream.
func StreamRequest(host string, n int) []byte {
	return fmt.Appendf(nil, "GET /mcp HTTP/1.1\r\nHost: %s\r\nUser-Agent: thoughtgate-bench\r\n"+
		"Accept: text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: stream-%d\r\n\r\n", host, n)
}

func (b Body) idSlot() []byte {
	if slot := idSlot(b.Head); slot != nil {
		return slot
	}
	return idSlot(b.Tail)
}

// Len returns the length of the whole body.
func (b Body) Len() int64 {
	return int64(len(b.Head)) + int64(len(b.Block))*int64(b.Blocks) + int64(len(b.Tail))
}

// WriteTo writes the whole body to w, block by block.
func (b Body) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for i := -1; i <= b.Blocks; i++ {
		part := b.part(i)
		if len(part) == 0 {
			continue
		}
		n, err := w.Write(part)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// part returns the head for -1, then the blocks, and the tail for Blocks.
func (b Body) part(i int) []byte {
	switch {
	case i < 0:
		return b.Head
	case i < b.Blocks:
		return b.Block
	default:
		return b.Tail
	}
}

// ErrDiffers reports a body that differs from the expected one.
var ErrDiffers = errors.New("body differs from what the upstream sent")

// A Checker compares a body that arrives in pieces with the expected body.
type Checker struct {
	want Body
	next int // the number of the next part, as in Body.part
	off  int // the number of received bytes of the part
	seen int64
}

// NewChecker returns a Checker at the beginning of the body.
func NewChecker(want Body) Checker { return Checker{want: want, next: -1} }

// Accept checks the next piece. Its error is [ErrDiffers] with the position.
func (c *Checker) Accept(piece []byte) error {
	for len(piece) > 0 {
		if c.next > c.want.Blocks {
			return fmt.Errorf("%w: more than %d bytes", ErrDiffers, c.seen)
		}
		rest := c.want.part(c.next)[c.off:]
		n := min(len(rest), len(piece))
		if !bytes.Equal(rest[:n], piece[:n]) {
			return fmt.Errorf("%w: within %d bytes after byte %d", ErrDiffers, n, c.seen)
		}
		piece = piece[n:]
		c.seen += int64(n)
		if c.off += n; n == len(rest) {
			c.next, c.off = c.next+1, 0
		}
	}
	return nil
}

// Complete reports whether the whole body was received.
func (c *Checker) Complete() bool { return c.seen == c.want.Len() }

// Seen returns the number of received bytes.
func (c *Checker) Seen() int64 { return c.seen }
