package clients_test

import (
	"context"
	"embed"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv"
)

//go:embed inspector/package.json inspector/package-lock.json
var inspectorPins embed.FS

// inspector returns the path of the MCP Inspector, which is installed once for all tests.
var inspector = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	own, err := fs.Sub(inspectorPins, "inspector")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	dir, err := testenv.InstallNPM(ctx, filepath.Join(cache, "thoughtgate"), "inspector", own)
	return filepath.Join(dir, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"), err
})

// inspect calls a tool of a server with the Inspector, and returns the text of the result or
// of the error.
func inspect(t *testing.T, era, server, tool, arguments string) string {
	t.Helper()
	testenv.NeedNode(t)
	program, err := inspector()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", program, "--cli", server, "--protocol-era", era, "--format", "json",
		"--method", "tools/call", "--tool-name", tool, "--tool-args-json", arguments)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	cmd.WaitDelay = time.Second
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if len(out) == 0 {
		if ctx.Err() != nil || !strings.Contains(errs.String(), `"error"`) {
			t.Fatalf("%v: %s", err, errs.String())
		}
		return errs.String()
	}
	var said struct {
		Result result `json:"result"`
	}
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return said.Result.told().text
}

// The Inspector runs tools of an example as tasks, in both eras. A server refuses failing_job
// if its client requests no task.
func libraryInspector(t *testing.T, server string) {
	t.Helper()
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			for _, tt := range []struct{ tool, arguments, want string }{
				{"greet", `{"name":"Ann"}`, "Hello, Ann!"},
				{"slow_compute", `{"seconds":0.5}`, "computed"},
				{"failing_job", `{}`, "it did not work"},
			} {
				if got := inspect(t, era, server, tt.tool, tt.arguments); !strings.Contains(got, tt.want) {
					t.Errorf("%s: %s; want %s", tt.tool, got, tt.want)
				}
			}
		})
	}
}

// The Inspector starts the example with pipes, and runs its tool as a task.
func TestLibraryPipeInspector(t *testing.T) {
	testenv.NeedNode(t)
	program := example(t, "stdio")
	for _, era := range []string{"legacy", "modern"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			if got := inspect(t, era, program, "slow", `{}`); got != "done" {
				t.Errorf("slow: %s", got)
			}
		})
	}
}
