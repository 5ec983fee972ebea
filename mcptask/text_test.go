package mcptask_test

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
	"github.com/thoughtgate/thoughtgate-go/mcptask"
	"github.com/thoughtgate/thoughtgate-go/task"
	"github.com/thoughtgate/thoughtgate-go/task/lifecycle"
)

// If a result is lost, the server returns an error and writes no part of the message.
func TestLostResultIsError(t *testing.T) {
	done := newTask(t, lifecycle.Admit{By: "gate"}, claim, complete)
	answer, err := legacy.ResultOutcome(done)
	texts := map[string]mcptask.Text{
		"modern get":          mustText(modern.GetResult(done)),
		"modern notification": mustText(modern.StatusNotification(done, json.RawMessage(`1`))),
		"legacy answer":       mustText(answer.Result, err),
	}
	for name, text := range texts {
		for _, payload := range []string{"", "[]", " {}"} {
			var out strings.Builder
			if err := text.Compose(&out, strings.NewReader(payload)); !errors.Is(err, task.ErrChunkMissing) || out.Len() > 0 {
				t.Errorf("%s with %q: %v, %q", name, payload, err, out.String())
			}
		}
		gone := errors.New("gone")
		var out strings.Builder
		if err := text.Compose(&out, iotest.ErrReader(gone)); !errors.Is(err, gone) || out.Len() > 0 {
			t.Errorf("%s: %v, %q", name, err, out.String())
		}
		err := text.Compose(&out, io.MultiReader(strings.NewReader(`{"a":[`+strings.Repeat("1,", 1000)), iotest.ErrReader(gone)))
		if !errors.Is(err, gone) || json.Valid([]byte(out.String())) {
			t.Errorf("%s: %v, %q", name, err, out.String())
		}
	}
}

// An answer of any size is inserted unchanged.
func TestLargePayloadIsUnchanged(t *testing.T) {
	payload := `{"content":[{"type":"text","text":"` + strings.Repeat("é", 100<<10) + `"}], "_meta": {"a":1}}`
	done := newTask(t, lifecycle.Admit{By: "gate"}, claim, lifecycle.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK, Chunks: 4, Size: int64(len(payload))}})
	answer, err := legacy.ResultOutcome(done)
	related := strings.Replace(payload, `{"a":1}`, `{"a":1,"io.modelcontextprotocol/related-task":{"taskId":"`+string(done.ID)+`"}}`, 1)
	for _, tt := range []struct {
		text         mcptask.Text
		path         []string
		want, member string
	}{
		{mustText(answer.Result, err), nil, related, ""},
		{mustText(modern.GetResult(done)), []string{"result"}, payload, "resultType"},
		{mustText(modern.StatusNotification(done, json.RawMessage(`1`))), []string{"params", "result"}, payload, "method"},
	} {
		v := jsonrpc.Value{Bytes: mustWith([]byte(payload))(tt.text, nil)}
		if !json.Valid(v.Bytes) || tt.member != "" && !v.Member(tt.member).Present() {
			t.Errorf("%.200s…", v.Bytes)
		}
		for _, name := range tt.path {
			v = v.Member(name)
		}
		if string(v.Bytes) != tt.want {
			t.Errorf("%v: %.200s…", tt.path, v.Bytes)
		}
	}
}
