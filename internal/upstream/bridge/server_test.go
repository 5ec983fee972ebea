package bridge_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/pipeserver"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// TestMain runs the tests, or the MCP server that the tests start.
func TestMain(m *testing.M) {
	if file := os.Getenv("BRIDGE_SEEN"); file != "" {
		s := &pipeserver.Server{Prefix: strconv.Itoa(os.Getpid()) + " ", Stubborn: os.Getenv("BRIDGE_STUBBORN") != "", Handle: handle}
		s.Serve(file)
		return
	}
	os.Exit(m.Run())
}

// handle answers a request. The names of the tools describe their behavior.
func handle(s *pipeserver.Server, m *jsonrpc.Message) {
	switch m.Method {
	case "initialize":
		awaitFile(os.Getenv("BRIDGE_WAIT"))
		version, _ := m.Params.Member("protocolVersion").Text()
		if version == "unknown" {
			s.Fail(m, jsonrpc.CodeInvalidParams, "no")
			return
		}
		s.Result(m, `{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"serverInfo":{"name":"test","version":"1"}}`)
	case "tools/list":
		s.Result(m, `{"tools":[{"name":"echo","inputSchema":{"type":"object"}},{"name":"delete","inputSchema":{"type":"object"}}]}`)
	case "tools/call":
		callTool(s, m)
	case "subscriptions/listen":
		tag := `"_meta":{"io.modelcontextprotocol/subscriptionId":` + string(m.ID.Bytes) + `}`
		s.Write(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{` + tag + `,"notifications":{"toolsListChanged":true}}}`)
		s.Write(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{` + tag + `}}`)
		s.Result(m, `{"resultType":"complete",`+tag+`}`)
	default:
		s.Fail(m, jsonrpc.CodeMethodNotFound, "no such method")
	}
}

// awaitFile waits until a file exists, unless its name is empty.
func awaitFile(name string) {
	for name != "" {
		if _, err := os.Stat(name); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// besideSeen returns the path of a file in the directory of the test.
func besideSeen(name string) string {
	return filepath.Join(filepath.Dir(os.Getenv("BRIDGE_SEEN")), name)
}

func callTool(s *pipeserver.Server, m *jsonrpc.Message) {
	name, _ := m.Params.Name.Text()
	switch name {
	case "pid":
		s.Text(m, "pid "+strconv.Itoa(os.Getpid())+".")
	case "environ":
		s.Text(m, strings.Join(os.Environ(), "\n"))
	case "dir":
		dir, _ := os.Getwd()
		s.Text(m, dir)
	case "ask_client":
		s.Text(m, s.Ask(`,"method":"sampling/createMessage","params":{"maxTokens": 1.0,"messages":[]}`))
	case "progress":
		progress(s, m)
		time.Sleep(50 * time.Millisecond) // lets requests of several clients overlap
		s.Text(m, "done "+string(m.Params.Arguments.Bytes))
	case "announce": // sends a notification after the call has ended
		s.Text(m, "soon")
		time.Sleep(50 * time.Millisecond)
		s.Write(`{"jsonrpc":"2.0","method":"notifications/resources/list_changed"}`)
	case "log": // sends a notification about a call without naming it, once a file exists
		file, _ := m.Params.Arguments.Member("after").Text()
		awaitFile(besideSeen(file))
		s.Write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":` + string(m.Params.Arguments.Bytes) + `}}`)
		s.Text(m, "logged")
	case "flood":
		for i := range 5000 {
			s.Write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 1000) + strconv.Itoa(i) + `"}}`)
			fmt.Fprintln(os.Stderr, "noise", i)
		}
		s.Text(m, "flooded")
	case "large":
		if m.Params.Meta.Member("progressToken").Present() {
			progress(s, m)
		}
		s.Result(m, `{"content":[{"type":"text","text":"`+strings.Repeat("x", largeAnswer)+`"}]}`)
		fmt.Fprintln(os.Stderr, "wrote a large answer")
	case "huge":
		s.Text(m, strings.Repeat("x", 3<<20))
	case "crash":
		fmt.Fprintln(os.Stderr, "going down")
		os.Exit(3)
	case "answer_again":
		s.Text(m, "first")
		s.Text(m, "second")
		s.Write(`{"jsonrpc":"2.0","id":` + string(m.ID.Bytes) + `,"result":{},"result":{}}`)
		_ = os.WriteFile(besideSeen("answered"), nil, 0o600)
	case "answer_last":
		awaitFile(besideSeen("answered"))
		s.Text(m, "last")
	case "hang":
	case "forge": // answers another request than the one it was sent
		s.Write(`{"jsonrpc":"2.0","id":` + string(m.Params.Arguments.Member("id").Bytes) + `,"result":{"content":[{"type":"text","text":"forged"}]}}`)
		s.Text(m, "tried")
	default:
		s.Text(m, "ran "+name+" "+string(m.Params.Arguments.Bytes))
	}
}

// largeAnswer is larger than the buffers of a connection.
const largeAnswer = 5 << 20

// progress sends a progress notification about a call.
func progress(s *pipeserver.Server, m *jsonrpc.Message) {
	s.Write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(m.Params.Meta.Member("progressToken").Bytes) + `,"progress":  5}}`)
}
