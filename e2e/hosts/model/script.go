package model

import (
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// A question is a request to the model in any API.
type question struct {
	api      string
	tools    []string // the offered tools
	results  []string // of the wanted tool, in order
	searched bool     // the model has looked for the tool
	prompt   string   // the whole request, because some hosts name tools only there
}

// An action is the model's answer: a call of a tool, or else text.
type action struct {
	tool      string
	arguments string
	text      string
}

// answer decides on an action and records the question.
func (s *Server) answer(q question) action {
	if len(q.tools) == 0 {
		return action{text: "ok"}
	}
	a := s.script.next(q)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns = append(s.turns, Turn{At: s.now(), API: q.api, Results: q.results, Called: s.script.wants(a.tool)})
	return a
}

// wants reports whether a tool is the tool that the model calls. Some hosts have one tool that
// calls all hidden tools.
func (s Script) wants(name string) bool {
	return strings.HasSuffix(name, s.Tool) || name == indirect
}

// begins reports whether a message is the user's wish to try again.
func (s Script) begins(content jsontext.Value) bool {
	return s.Again != "" && strings.Contains(text(content), s.Again)
}

const indirect = "tool_call"

func (s Script) next(q question) action {
	if n := len(q.results); n > 0 {
		last := q.results[n-1]
		if !s.callAgain(last) || n >= s.MaxCalls {
			return action{text: "The tool said: " + last}
		}
	}
	for _, name := range q.tools {
		if strings.HasSuffix(name, s.Tool) {
			return action{tool: name, arguments: s.Arguments}
		}
	}
	return s.find(q)
}

// find calls a tool that the host hides until the model searches for it. Its name is in the
// prompt.
func (s Script) find(q question) action {
	hidden := regexp.MustCompile(`mcp__\w*?` + regexp.QuoteMeta(s.Tool)).FindString(q.prompt)
	if hidden == "" {
		return action{text: "I have no tool " + s.Tool + "."}
	}
	for _, name := range q.tools {
		switch strings.ReplaceAll(strings.ToLower(name), "_", "") {
		case "toolsearch":
			if !q.searched {
				return action{tool: name, arguments: `{"query":"select:` + hidden + `","max_results":5}`}
			}
		case "toolcall":
			return action{tool: name, arguments: `{"name":"` + hidden + `","arguments":` + s.Arguments + `}`}
		default:
		}
	}
	return action{tool: hidden, arguments: s.Arguments}
}

// isSearch reports whether a tool finds other tools.
func isSearch(name string) bool {
	return strings.ReplaceAll(strings.ToLower(name), "_", "") == "toolsearch"
}

var (
	repeat      = regexp.MustCompile(`(?i)\bagain\b.*\bsame arguments\b`)
	tookTooLong = regexp.MustCompile(`(?i)\btimed out\b|\btime-?out\b`)
	refuse      = regexp.MustCompile(`(?i)\b(do not|don't|never) call\b.*\bagain\b`)
)

// callAgain reports whether the model makes the same call again after a result.
func (s Script) callAgain(result string) bool {
	if s.Retry && tookTooLong.MatchString(result) {
		return true
	}
	return repeat.MatchString(result) && !refuse.MatchString(result)
}
