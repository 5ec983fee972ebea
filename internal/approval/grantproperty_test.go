package approval_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/thoughtgate/thoughtgate-go/internal/approval"
	"github.com/thoughtgate/thoughtgate-go/task"
)

// A wanted is a call of the property test. Each part has one of a few values; the first one is
// the value that the approver saw.
type wanted struct {
	owner, principal, upstream, tool, workflow, definition string
	path, n, extra, params, meta                           string
	late                                                   time.Duration
}

// parts are the values of each part. They include values that are refused before the service
// looks for a grant, such as duplicate names.
var parts = map[string][]string{
	"owner":      {"ann", "Ann", "ann ", "eve"},
	"principal":  {"ann", "eve"},
	"upstream":   {"files", "files2"},
	"tool":       {"delete_file", "Delete_file", "delete_file\u200b"},
	"workflow":   {"ops", "brief"},
	"definition": {definition, "v2-0012", "0011", ""},
	"path":       {`"/a"`, `"/b"`, `"\u002fa"`, `["/a"]`, `null`, `1`},
	"n":          {`1`, `1.0`, `1e0`, `10e-1`, `"1"`, `true`, `-1`},
	"extra":      {``, `,"force":true`, `,"Path":"/etc"`, `,"path":"/etc"`, `,"n":1`, `,"":0`},
	"params":     {``, `,"x":1`, `,"task":{}`, `,"cursor":"c"`},
	"meta":       {``, `"tenant":"b"`, `"claudecode/toolUseId":"7"`, `"progressToken":1`, `"client.reason":"please"`},
}

// harmless are values that do not change the meaning of a call.
var harmless = map[string][]string{
	"path":   {`"/b"`, `"\u002fa"`}, // a free argument
	"params": {`,"task":{}`},
	"meta":   {`"claudecode/toolUseId":"7"`, `"progressToken":1`, `"client.reason":"please"`},
}

// draw returns a call, and whether a grant for the first value of each part covers it.
func draw(t *rapid.T) (wanted, bool) {
	covered := true
	pick := func(part string) string {
		at := 0
		if rapid.IntRange(0, 5).Draw(t, "differs") == 0 {
			at = rapid.IntRange(0, len(parts[part])-1).Draw(t, part)
		}
		chosen := parts[part][at]
		covered = covered && (at == 0 || slices.Contains(harmless[part], chosen))
		return chosen
	}
	w := wanted{
		owner: pick("owner"), principal: pick("principal"), upstream: pick("upstream"), tool: pick("tool"), workflow: pick("workflow"),
		definition: pick("definition"), path: pick("path"), n: pick("n"), extra: pick("extra"), params: pick("params"), meta: pick("meta"),
		late: rapid.SampledFrom([]time.Duration{0, 0, 0, 10 * time.Minute, 31 * time.Minute}).Draw(t, "late"),
	}
	return w, covered && w.late < 30*time.Minute
}

func (w wanted) call() approval.Call {
	c := toolCall(`{}`)
	c.Owner, c.Principal.ID, c.Upstream, c.Verdict.Workflow, c.Tool.Digest = w.owner, w.principal, w.upstream, w.workflow, w.definition
	c.Message = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":{"path":%s,"n":%s%s}%s,"_meta":{%s}}}`,
		w.tool, w.path, w.n, w.extra, w.params, w.meta)
	return c
}

// Whatever is changed in a call, a grant lets it run only if the changed parts are free or
// harmless.
func TestGrantCoversOnlyHarmlessChanges(t *testing.T) {
	first := wanted{"ann", "ann", "files", "delete_file", "ops", definition, `"/a"`, "1", "", "", "", 0}
	rapid.Check(t, func(r *rapid.T) {
		w, covered := draw(r)
		var letIn bool
		var err error
		synctest.Test(t, func(t *testing.T) {
			o := open(t, nil)
			o.allowGrants("ops")
			o.allowGrants("brief")
			o.grant(t, first.call(), terms(5, "path"))
			time.Sleep(w.late)
			var asked task.Task
			asked, _, err = o.Hold(t.Context(), w.call())
			letIn = err == nil && asked.State == task.Approved
		})
		if letIn != covered {
			r.Fatalf("%+v runs: %t, want %t (%v)", w, letIn, covered, err)
		}
	})
}
