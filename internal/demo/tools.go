package demo

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxSeconds   = 300
	maxMegabytes = 1024
)

// A tool is an entry of tools/list with its implementation.
type tool struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Schema      jsontext.Value `json:"inputSchema"`
	Annotations annotations    `json:"annotations"`

	// run returns the text of the result in pieces, or an error in words for a model.
	run func(context.Context, *call) (iter.Seq[string], error)
}

type annotations struct {
	Title       string `json:"title"`
	ReadOnly    bool   `json:"readOnlyHint"`
	Destructive bool   `json:"destructiveHint"`
	Idempotent  bool   `json:"idempotentHint"`
	OpenWorld   bool   `json:"openWorldHint"`
}

// A call is the input of a tool.
type call struct {
	arguments jsontext.Value
	progress  func(done, total int, message string)
}

func (s *Server) newTools() []tool {
	return []tool{
		{
			Name:        "list_files",
			Description: "List the files below a directory, with their sizes.",
			Schema:      jsontext.Value(`{"type":"object","properties":{"directory":{"type":"string","description":"Where to look; everywhere if absent."}},"additionalProperties":false}`),
			Annotations: annotations{Title: "List files", ReadOnly: true, Idempotent: true},
			run:         onFiles(s.listFiles),
		},
		{
			Name:        "read_file",
			Description: "Return the text of a file.",
			Schema:      jsontext.Value(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`),
			Annotations: annotations{Title: "Read a file", ReadOnly: true, Idempotent: true},
			run:         onFiles(s.readFile),
		},
		{
			Name:        "write_file",
			Description: "Create a file, or replace the text of one.",
			Schema:      jsontext.Value(`{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"}},"required":["path","text"],"additionalProperties":false}`),
			Annotations: annotations{Title: "Write a file", Destructive: true, Idempotent: true},
			run:         onFiles(s.writeFile),
		},
		{
			Name:        "delete_file",
			Description: "Delete a file for good.",
			Schema:      jsontext.Value(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"],"additionalProperties":false}`),
			Annotations: annotations{Title: "Delete a file", Destructive: true, Idempotent: true},
			run:         onFiles(s.deleteFile),
		},
		{
			Name:        "slow_report",
			Description: "Take some seconds to write a short report, and report progress.",
			Schema:      jsontext.Value(`{"type":"object","properties":{"seconds":{"type":"number","minimum":0,"maximum":300}},"required":["seconds"],"additionalProperties":false}`),
			Annotations: annotations{Title: "Slow report", ReadOnly: true, Idempotent: true},
			run:         slowReport,
		},
		{
			Name:        "big_report",
			Description: "Return a very long report.",
			Schema:      jsontext.Value(`{"type":"object","properties":{"megabytes":{"type":"integer","minimum":1,"maximum":1024}},"required":["megabytes"],"additionalProperties":false}`),
			Annotations: annotations{Title: "Big report", ReadOnly: true, Idempotent: true},
			run:         bigReport,
		},
	}
}

// onFiles returns the implementation of a tool that needs only its arguments. Arguments are not
// checked against the schema: each tool reports missing arguments itself.
func onFiles[A any](do func(A) (string, error)) func(context.Context, *call) (iter.Seq[string], error) {
	return func(_ context.Context, c *call) (iter.Seq[string], error) {
		var args A
		if err := c.read(&args); err != nil {
			return nil, err
		}
		text, err := do(args)
		return oneText(text), err
	}
}

type inDirectory struct {
	Directory string `json:"directory"`
}

type ofFile struct {
	Path string `json:"path"`
}

var errNoPath = errors.New("the argument \"path\" is missing")

func (s *Server) listFiles(args inDirectory) (string, error) {
	lines, err := s.files.list(args.Directory)
	return strings.Join(lines, "\n"), err
}

func (s *Server) readFile(args ofFile) (string, error) {
	if args.Path == "" {
		return "", errNoPath
	}
	return s.files.read(args.Path)
}

type newText struct {
	Path string  `json:"path"`
	Text *string `json:"text"`
}

func (s *Server) writeFile(args newText) (string, error) {
	if args.Path == "" || args.Text == nil {
		return "", errors.New("write_file needs a path and a text")
	}
	created, err := s.files.write(args.Path, *args.Text)
	verb := "replaced"
	if created {
		verb = "created"
	}
	return fmt.Sprintf("%s %s (%d bytes)", verb, clean(args.Path), len(*args.Text)), err
}

func (s *Server) deleteFile(args ofFile) (string, error) {
	if args.Path == "" {
		return "", errNoPath
	}
	return "deleted " + clean(args.Path), s.files.remove(args.Path)
}

// slowReport works for a while and reports progress at least every second.
func slowReport(ctx context.Context, c *call) (iter.Seq[string], error) {
	var args struct {
		Seconds *float64 `json:"seconds"`
	}
	if err := c.read(&args); err != nil {
		return nil, err
	}
	if args.Seconds == nil || *args.Seconds < 0 || *args.Seconds > maxSeconds {
		return nil, fmt.Errorf("slow_report needs seconds between 0 and %d", maxSeconds)
	}
	total := time.Duration(*args.Seconds * float64(time.Second))
	pages := max(1, int((total+time.Second-1)/time.Second))
	page := time.NewTicker(max(1, total/time.Duration(pages)))
	defer page.Stop()
	c.progress(0, pages, "sharpening a pencil")
	for n := 1; n <= pages; n++ {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-page.C:
			c.progress(n, pages, fmt.Sprintf("wrote page %d of %d", n, pages))
		}
	}
	return oneText(fmt.Sprintf("The report has %d pages and took %v. It recommends to wait.", pages, total)), nil
}

// bigReport returns exactly the requested megabytes, one piece at a time.
func bigReport(_ context.Context, c *call) (iter.Seq[string], error) {
	var args struct {
		Megabytes *int `json:"megabytes"`
	}
	if err := c.read(&args); err != nil {
		return nil, err
	}
	if args.Megabytes == nil || *args.Megabytes < 1 || *args.Megabytes > maxMegabytes {
		return nil, fmt.Errorf("big_report needs megabytes between 1 and %d", maxMegabytes)
	}
	const line = "All is well. All is well. All is well. All is well. All is well\n" // 64 bytes
	const piece = 32 << 10
	pieces := *args.Megabytes << 20 / piece
	return func(yield func(string) bool) {
		text := strings.Repeat(line, piece/len(line))
		for range pieces {
			if !yield(text) {
				return
			}
		}
	}, nil
}

// read decodes the arguments into v, a pointer to a struct.
func (c *call) read(v any) error {
	if len(c.arguments) == 0 {
		return nil
	}
	err := json.Unmarshal(c.arguments, v, json.RejectUnknownMembers(true))
	wrong, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return err
	}
	name := strings.TrimPrefix(string(wrong.JSONPointer), "/")
	switch {
	case name == "":
		return errors.New("the arguments must be an object")
	case errors.Is(err, json.ErrUnknownName):
		return fmt.Errorf("there is no argument %q", name)
	default:
		return fmt.Errorf("the argument %q has the wrong type", name)
	}
}

func oneText(s string) iter.Seq[string] { return slices.Values([]string{s}) }
