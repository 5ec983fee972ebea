package model

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"
)

// chatRequest is a request of OpenAI's Chat Completions API.
type chatRequest struct {
	Model    string `json:"model"`
	Stream   bool   `json:"stream"`
	Messages []struct {
		Role       string         `json:"role"`
		Content    jsontext.Value `json:"content"`
		ToolCallID string         `json:"tool_call_id"`
		ToolCalls  []struct {
			ID       string       `json:"id"`
			Function chatFunction `json:"function"`
		} `json:"tool_calls"`
	} `json:"messages"`
	Tools []struct {
		Function chatFunction `json:"function"`
	} `json:"tools"`
}

type chatFunction struct {
	Name string `json:"name"`
}

func (r *chatRequest) question(s Script) question {
	q := question{api: "chat"}
	for _, t := range r.Tools {
		q.tools = append(q.tools, t.Function.Name)
	}
	calls := map[string]bool{}
	for _, m := range r.Messages {
		q.prompt += string(m.Content)
		if s.begins(m.Content) {
			q.results = nil
		}
		for _, c := range m.ToolCalls {
			calls[c.ID] = s.wants(c.Function.Name)
			q.searched = q.searched || isSearch(c.Function.Name)
		}
		if m.Role == "tool" && calls[m.ToolCallID] {
			q.results = append(q.results, text(m.Content))
		}
	}
	return q
}

func chatAnswer(s *Server, w http.ResponseWriter, _ *http.Request, r *chatRequest) {
	a := s.answer(r.question(s.script))
	message, finish := object{"role": "assistant", "content": a.text}, "stop"
	if a.tool != "" {
		finish = "tool_calls"
		message["content"] = nil
		message["tool_calls"] = []object{{
			"index": 0, "id": s.id("call"), "type": "function",
			"function": object{"name": a.tool, "arguments": a.arguments},
		}}
	}
	answer := object{"id": s.id("chatcmpl"), "created": 1, "model": r.Model}
	usage := object{"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
	if !r.Stream {
		answer["object"], answer["usage"] = "chat.completion", usage
		answer["choices"] = []object{{"index": 0, "message": message, "finish_reason": finish}}
		reply(w, answer)
		return
	}
	answer["object"] = "chat.completion.chunk"
	e := newEvents(w)
	answer["choices"] = []object{{"index": 0, "delta": message, "finish_reason": nil}}
	e.data(answer)
	answer["choices"], answer["usage"] = []object{{"index": 0, "delta": object{}, "finish_reason": finish}}, usage
	e.data(answer)
	_, _ = w.Write([]byte("data: [DONE]\n\n"))
}
