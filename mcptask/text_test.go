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
)

// A result that is lost is not made up, and nothing is written in its place.
func TestMissingPayload(t *testing.T) {
	done := newTask(t, task.Admit{By: "gate"}, claim, complete)
	answer, err := legacy.ResultAnswer(done)
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

// However large an answer is, it is put in its place as it is.
func TestLargePayload(t *testing.T) {
	payload := `{"content":[{"type":"text","text":"` + strings.Repeat("é", 100<<10) + `"}], "_meta": {"a":1}}`
	done := newTask(t, task.Admit{By: "gate"}, claim, task.Complete{By: "gate", Result: task.Result{Kind: task.ResultOK, Chunks: 4, Size: int64(len(payload))}})
	answer, err := legacy.ResultAnswer(done)
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
