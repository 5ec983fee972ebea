package upstream

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// readBatchOutcome reads the answers to a batch and returns them as one outcome:
// an object whose member responses has, in the places of the messages, what was
// said to each, or null.
func readBatchOutcome(resp *Response, p jsonrpc.Packet) (approval.Outcome, error) {
	defer func() { _ = resp.Body.Close() }()
	if resp.Status != http.StatusOK {
		return approval.Outcome{}, statusError(resp.Status)
	}
	answers, missing := make([][]byte, len(p.Messages)), 0
	for i := range p.Messages {
		answers[i] = []byte("null")
		if p.Messages[i].Kind == jsonrpc.Request {
			missing++
		}
	}
	body := io.LimitReader(resp.Body, MaxWhole)
	next := jsonrpc.NewEventReader(body, MaxWhole).Next
	if !resp.Events {
		next = func() (jsonrpc.Event, error) {
			data, err := io.ReadAll(body)
			if err == nil && len(data) == 0 {
				err = io.EOF
			}
			return jsonrpc.Event{Data: data}, err
		}
	}
	for missing > 0 {
		event, err := next()
		if err != nil {
			return approval.Outcome{}, invalidAnswer(fmt.Errorf("%d answers of a batch are missing: %w", missing, err))
		}
		missing -= file(event.Data, p, answers)
	}
	return approval.Outcome{Body: bytes.NewReader(slices.Concat([]byte(`{"responses":`), jsonrpc.Array(answers), []byte("}")))}, nil
}

// file puts the answers in data in the places of the requests they belong to,
// and returns how many there were.
func file(data []byte, p jsonrpc.Packet, answers [][]byte) (filed int) {
	said, err := jsonrpc.Parse(data, jsonrpc.Limits{})
	if err != nil {
		return 0
	}
	for i := range said.Messages {
		m := &said.Messages[i]
		place := slices.IndexFunc(p.Messages, func(asked jsonrpc.Message) bool {
			return asked.Kind == jsonrpc.Request && jsonrpc.SameID(asked.ID.Bytes, m.ID.Bytes)
		})
		if m.Kind == jsonrpc.Response && place >= 0 && string(answers[place]) == "null" {
			answers[place] = bytes.Clone(m.Raw)
			filed++
		}
	}
	return filed
}
