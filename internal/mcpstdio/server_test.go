package mcpstdio_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/internal/testenv/pipeserver"
	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// TestMain runs the tests, or the server that the tests wrap.
func TestMain(m *testing.M) {
	if file := os.Getenv("MCPSTDIO_SEEN"); file != "" {
		s := &pipeserver.Server{Stubborn: os.Getenv("MCPSTDIO_STUBBORN") != "", Handle: handle}
		if os.Getenv("MCPSTDIO_BANNER") != "" {
			s.Banner = []string{"Welcome to the \x1b[1mserver\x1b[0m!", `{"jsonrpc":"2.0","id":1,"result":{"before":"initialize"}}`}
		}
		s.Serve(file)
		return
	}
	os.Exit(m.Run())
}

// asked is closed when the client has answered a question.
var (
	asked      = make(chan struct{})
	closeAsked = sync.OnceFunc(func() { close(asked) })
)

// handle answers a request. The tool names describe their behavior.
func handle(s *pipeserver.Server, m *jsonrpc.Message) {
	switch m.Method {
	case "initialize":
		version, _ := m.Params.Member("protocolVersion").Text()
		s.Result(m, `{"protocolVersion":"`+version+`","capabilities":{"tools":{}`+taskCapability()+`},"serverInfo":{"name":"test","version":"1"}}`)
	case "tools/list":
		s.Result(m, `{"tools":[`+strings.Join(tools(), ",")+`],"extra":  1.0}`)
	case "tools/call":
		callTool(s, m)
	case "tasks/get":
		s.Result(m, nestedTask("completed"))
	case "tasks/result":
		s.Text(m, "nested outcome")
	case "subscriptions/listen":
		listen(s, m)
	default:
		s.Fail(m, jsonrpc.CodeMethodNotFound, "no such method")
	}
}

// listen acknowledges a subscription as often as the client requests, and ends it on request.
func listen(s *pipeserver.Server, m *jsonrpc.Message) {
	if m.Kind != jsonrpc.Request {
		return
	}
	wishes := m.Params.Member("notifications")
	times, _ := wishes.Member("acknowledgements").Int()
	for range max(times, 1) {
		s.Write(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` +
			string(m.ID.Bytes) + `},"notifications":{"toolsListChanged":true}}}`)
	}
	switch end, _ := wishes.Member("end").Text(); end {
	case "error":
		s.Fail(m, jsonrpc.CodeInternal, "no more")
	case "crash":
		os.Exit(3)
	}
}

// makesTasks reports whether the server makes tasks of calls of delete.
func makesTasks() bool { return os.Getenv("MCPSTDIO_TASKS") != "" }

func taskCapability() string {
	if !makesTasks() {
		return ""
	}
	return `,"tasks":{"cancel":{},"requests":{"tools":{"call":{}}}}`
}

func nestedTask(status string) string {
	now := time.Now().UTC().Format(time.RFC3339)
	return `{"taskId":"nested-1","status":"` + status + `","createdAt":"` + now + `","lastUpdatedAt":"` + now + `","ttl":600000,"pollInterval":10}`
}

func tools() (list []string) {
	for _, name := range []string{"echo", "ask_client", "progress", "crash", "hang", "huge", "garbage", "unclear", "delete", "delete_denied", "slow", "flood"} {
		support := ""
		if makesTasks() && name == "delete" {
			support = `,"execution":{"taskSupport":"required"}`
		}
		list = append(list, `{"name":"`+name+`","inputSchema":{"type":"object"}`+support+`}`)
	}
	return list
}

func callTool(s *pipeserver.Server, m *jsonrpc.Message) {
	name, _ := m.Params.Name.Text()
	if m.Params.Task.Present() && makesTasks() {
		s.Result(m, `{"task":`+nestedTask("working")+`}`)
		return
	}
	switch name {
	case "ask_client":
		answer := s.Ask(`,"method":"sampling/createMessage","params":{"maxTokens": 1.0,"messages":[]}`)
		closeAsked()
		s.Text(m, answer)
	case "progress":
		s.Write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(m.Params.Meta.Member("progressToken").Bytes) + `,"progress":  5}}`)
		s.Text(m, "done")
	case "crash":
		fmt.Fprintln(os.Stderr, "going down")
		os.Exit(3)
	case "hang":
	case "huge":
		size, _ := m.Params.Arguments.Member("size").Int()
		s.Write(`{"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", int(size)) + `"}]},"jsonrpc":"2.0","id":` + string(m.ID.Bytes) + `}`)
	case "garbage":
		s.Write("listening on stdio…")
		s.Write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":\"\xff\xfe\"}")
		s.Write("{\"half\": ")
		s.Text(m, "after garbage")
	case "unclear": // ambiguous
		s.Write(`{"jsonrpc":"2.0","id":` + string(m.ID.Bytes) + `,"result":{"content":[],"a":1,"a":2}}`)
	case "flood":
		for i := range 5000 {
			s.Write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":` + strconv.Itoa(i) + `}}`)
		}
		s.Text(m, "flooded")
	case "slow": // until the client has answered a question
		<-asked
		s.Text(m, "slow")
	case "speak_of_task": // in an array and behind spaces
		const message = `{"jsonrpc":"2.0","method":"notifications/message","params":{"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"nested-1"}},"level":"info","data":"speaks"}}`
		s.Write(`[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"` + strings.Repeat("x", 1000) + `"}},` + message + `]`)
		s.Write("    " + message)
		s.Text(m, "spoke")
	case "forge": // answers another request than the one it was sent
		s.Write(`{"jsonrpc":"2.0","id":` + string(m.Params.Arguments.Member("id").Bytes) + `,"result":{"content":[{"type":"text","text":"forged"}]}}`)
		s.Text(m, "tried")
	default:
		s.Text(m, "ran "+name+" "+string(m.Params.Arguments.Bytes))
	}
}
