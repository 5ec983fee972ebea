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

// readBatchOutcome reads the answers to a batch. The outcome is an object whose member responses
// has, in the order of the requests, the answer to each, or null.
func readBatchOutcome(resp *Response, asked []jsonrpc.Message) (approval.Outcome, error) {
	defer func() { _ = resp.Body.Close() }()
	answers, missing := make([][]byte, len(asked)), 0
	for i := range asked {
		answers[i] = []byte("null")
		if asked[i].Kind == jsonrpc.Request {
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
	if resp.Status != http.StatusOK {
		return approval.Outcome{}, refusedBatch(resp, next)
	}
	for missing > 0 {
		event, err := next()
		if err != nil {
			return approval.Outcome{}, invalidAnswer(fmt.Errorf("%d answers of a batch are missing: %w", missing, err))
		}
		missing -= placeAnswers(event.Data, asked, answers)
	}
	return approval.Outcome{Body: bytes.NewReader(slices.Concat([]byte(`{"responses":`), jsonrpc.Array(answers), []byte("}")))}, nil
}

// refusedBatch returns the error of a refused batch. A result in the refusal shows that a part of
// the batch has run.
func refusedBatch(resp *Response, next func() (jsonrpc.Event, error)) error {
	for {
		event, err := next()
		switch {
		case err != nil:
			return statusError(resp)
		case hasResult(event.Data):
			//mutate:swap "resultWithRefusal" "statusError" internal/mcphttp.TestRefusalWithResultMayHaveRun an approval of a batch is kept although its results came
			return resultWithRefusal(resp)
		}
	}
}

// hasResult reports whether one of the messages in data is a result.
func hasResult(data []byte) bool {
	said, err := jsonrpc.Parse(data, jsonrpc.Limits{})
	return err == nil && slices.ContainsFunc(said.Messages, func(m jsonrpc.Message) bool { return m.Result.Present() })
}

// placeAnswers stores the answers in data at the indexes of their requests and returns their
// number.
func placeAnswers(data []byte, asked []jsonrpc.Message, answers [][]byte) (filed int) {
	said, err := jsonrpc.Parse(data, jsonrpc.Limits{})
	if err != nil {
		return 0
	}
	for i := range said.Messages {
		m := &said.Messages[i]
		index := slices.IndexFunc(asked, func(request jsonrpc.Message) bool {
			return request.Kind == jsonrpc.Request && jsonrpc.SameID(request.ID.Bytes, m.ID.Bytes)
		})
		if m.Kind == jsonrpc.Response && index >= 0 && string(answers[index]) == "null" {
			answers[index] = bytes.Clone(m.Raw)
			filed++
		}
	}
	return filed
}
