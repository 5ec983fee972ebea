package model

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// anthropicRequest is a request of Anthropic's Messages API.
type anthropicRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role    string         `json:"role"`
		Content jsontext.Value `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name string `json:"name"`
	} `json:"tools"`
	System jsontext.Value `json:"system"`
}

// anthropicBlock is a part of a message.
type anthropicBlock struct {
	Type      string         `json:"type"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	ToolUseID string         `json:"tool_use_id"`
	IsError   bool           `json:"is_error"`
	Text      string         `json:"text"`
	Content   jsontext.Value `json:"content"`
}

func (r *anthropicRequest) question(s Script) question {
	q := question{api: "anthropic", prompt: string(r.System)}
	for _, t := range r.Tools {
		q.tools = append(q.tools, t.Name)
	}
	calls := map[string]bool{}
	for _, m := range r.Messages {
		q.prompt += string(m.Content)
		var blocks []anthropicBlock
		if json.Unmarshal(m.Content, &blocks) != nil {
			continue // plain text
		}
		for _, b := range blocks {
			q.read(s, b, calls)
		}
	}
	return q
}

const notification = "<task-notification>"

// read handles a block. Claude Code reports the end of a background call in a separate
// message.
func (q *question) read(s Script, b anthropicBlock, calls map[string]bool) {
	switch {
	case b.Type == "tool_use" && s.wants(b.Name):
		calls[b.ID] = true
	case b.Type == "tool_use" && isSearch(b.Name):
		q.searched = true
	case b.Type == "tool_result" && calls[b.ToolUseID]:
		result := text(b.Content)
		if b.IsError {
			result = "[error] " + result
		}
		q.results = append(q.results, result)
	case b.Type == "text" && strings.Contains(b.Text, notification):
		_, event, _ := strings.Cut(b.Text, notification)
		q.results = append(q.results, "[later] "+event)
	}
}

func anthropicAnswer(s *Server, w http.ResponseWriter, _ *http.Request, r *anthropicRequest) {
	a := s.answer(r.question(s.script))
	stop, block, empty := "end_turn", object{"type": "text", "text": a.text}, object{"type": "text", "text": ""}
	delta := object{"type": "text_delta", "text": a.text}
	if a.tool != "" {
		id := s.id("toolu")
		stop = "tool_use"
		block = object{"type": "tool_use", "id": id, "name": a.tool, "input": jsontext.Value(a.arguments)}
		empty = object{"type": "tool_use", "id": id, "name": a.tool, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": a.arguments}
	}
	message := object{
		"id": s.id("msg"), "type": "message", "role": "assistant", "model": r.Model, "content": []object{block},
		"stop_reason": stop, "stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1},
	}
	if !r.Stream {
		reply(w, message)
		return
	}
	message["content"], message["stop_reason"] = []object{}, nil
	e := newEvents(w)
	e.typed("message_start", object{"message": message})
	e.typed("content_block_start", object{"index": 0, "content_block": empty})
	e.typed("content_block_delta", object{"index": 0, "delta": delta})
	e.typed("content_block_stop", object{"index": 0})
	e.typed("message_delta", object{"delta": object{"stop_reason": stop, "stop_sequence": nil}, "usage": object{"output_tokens": 1}})
	e.typed("message_stop", object{})
}
