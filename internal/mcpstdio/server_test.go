package mcpstdio_test

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// TestMain runs the tests, or the server that the tests put behind the gate.
func TestMain(m *testing.M) {
	if file := os.Getenv("MCPSTDIO_SEEN"); file != "" {
		serveTests(file)
		return
	}
	os.Exit(m.Run())
}

// A server is an MCP server over standard input and output. What its tools do is
// said by their names: ask_client asks the client something first, and so on. It
// writes every line that it gets to a file.
type server struct {
	seen    *os.File
	mu      sync.Mutex
	answers map[string]chan string
}

func serveTests(file string) {
	seen, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	s := &server{seen: seen, answers: map[string]chan string{}}
	fmt.Fprintln(seen, "started")
	if os.Getenv("MCPSTDIO_BANNER") != "" {
		s.write("Welcome to the \x1b[1mserver\x1b[0m!")
		s.write(`{"jsonrpc":"2.0","id":1,"result":{"before":"initialize"}}`)
	}
	if os.Getenv("MCPSTDIO_STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		fmt.Fprintln(seen, lines.Text())
		p, err := jsonrpc.Parse([]byte(lines.Text()), jsonrpc.Limits{})
		if err != nil {
			s.write(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}`)
			continue
		}
		for i := range p.Messages {
			go s.handle(&p.Messages[i])
		}
	}
	fmt.Fprintln(seen, "end of input")
	if os.Getenv("MCPSTDIO_STUBBORN") != "" {
		select {}
	}
}

func (s *server) write(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Println(line)
}

func (s *server) handle(m *jsonrpc.Message) {
	if m.Kind == jsonrpc.Response {
		s.mu.Lock()
		answer := s.answers[string(m.ID.Bytes)]
		s.mu.Unlock()
		if answer != nil {
			answer <- string(m.Raw)
		}
		return
	}
	if m.Kind != jsonrpc.Request {
		return
	}
	switch m.Method {
	case "initialize":
		version, _ := m.Params.Member("protocolVersion").Text()
		s.result(m, `{"protocolVersion":"`+version+`","capabilities":{"tools":{}`+taskCapability()+`},"serverInfo":{"name":"test","version":"1"}}`)
	case "tools/list":
		s.result(m, `{"tools":[`+strings.Join(tools(), ",")+`],"extra":  1.0}`)
	case "tools/call":
		s.call(m)
	case "tasks/get":
		s.result(m, nestedTask("completed"))
	case "tasks/result":
		s.text(m, "nested outcome")
	case "subscriptions/listen":
		s.write(`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":` +
			string(m.ID.Bytes) + `},"notifications":{"toolsListChanged":true}}}`)
	default:
		s.write(string(jsonrpc.AppendErrorResponse(nil, m.ID.Bytes, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound, Message: "no such method"})))
	}
}

// makesTasks reports whether the server makes tasks of calls of the tool delete.
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

func (s *server) result(m *jsonrpc.Message, result string) {
	s.write(string(jsonrpc.AppendResult(nil, m.ID.Bytes, []byte(result))))
}

func (s *server) text(m *jsonrpc.Message, text string) {
	s.result(m, `{"content":[{"type":"text","text":`+string(jsonrpc.AppendString(nil, text))+`}]}`)
}

func (s *server) call(m *jsonrpc.Message) {
	name, _ := m.Params.Name.Text()
	if m.Params.Task.Present() && makesTasks() {
		s.result(m, `{"task":`+nestedTask("working")+`}`)
		return
	}
	switch name {
	case "ask_client":
		answer := make(chan string, 1)
		id := `"question-` + strconv.FormatInt(time.Now().UnixNano(), 10) + `"`
		s.mu.Lock()
		s.answers[id] = answer
		s.mu.Unlock()
		s.write(`{"jsonrpc":"2.0","id":` + id + `,"method":"sampling/createMessage","params":{"maxTokens": 1.0,"messages":[]}}`)
		s.text(m, <-answer)
	case "progress":
		s.write(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + string(m.Params.Meta.Member("progressToken").Bytes) + `,"progress":  5}}`)
		s.text(m, "done")
	case "crash":
		fmt.Fprintln(os.Stderr, "going down")
		os.Exit(3)
	case "hang":
	case "huge":
		size, _ := m.Params.Arguments.Member("size").Int()
		s.write(`{"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", int(size)) + `"}]},"jsonrpc":"2.0","id":` + string(m.ID.Bytes) + `}`)
	case "garbage":
		s.write("listening on stdio…")
		s.write("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\",\"params\":\"\xff\xfe\"}")
		s.write("{\"half\": ")
		s.text(m, "after garbage")
	case "unclear": // two readings
		s.write(`{"jsonrpc":"2.0","id":` + string(m.ID.Bytes) + `,"result":{"content":[],"a":1,"a":2}}`)
	case "flood":
		for i := range 5000 {
			s.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":` + strconv.Itoa(i) + `}}`)
		}
		s.text(m, "flooded")
	case "slow":
		time.Sleep(300 * time.Millisecond)
		s.text(m, "slow")
	case "forge": // answers another request than the one it was sent
		s.write(`{"jsonrpc":"2.0","id":` + string(m.Params.Arguments.Member("id").Bytes) + `,"result":{"content":[{"type":"text","text":"forged"}]}}`)
		s.text(m, "tried")
	default:
		s.text(m, "ran "+name+" "+string(m.Params.Arguments.Bytes))
	}
}
