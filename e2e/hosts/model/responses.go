package model

import (
	"maps"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// responsesRequest is a request of OpenAI's Responses API.
type responsesRequest struct {
	Model  string         `json:"model"`
	Stream bool           `json:"stream"`
	Input  jsontext.Value `json:"input"`
	Tools  []struct {
		Type  string `json:"type"`
		Name  string `json:"name"`
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	} `json:"tools"`
}

type responsesItem struct {
	Type   string         `json:"type"`
	Name   string         `json:"name"`
	CallID string         `json:"call_id"`
	Output jsontext.Value `json:"output"`
}

// question also returns the namespaces of tools, because Codex groups the tools of a server.
func (r *responsesRequest) question(s Script) (question, map[string]string) {
	q, spaces := question{api: "responses", prompt: string(r.Input)}, map[string]string{}
	for _, t := range r.Tools {
		if t.Name != "" && t.Type != "namespace" {
			q.tools = append(q.tools, t.Name)
		}
		for _, inner := range t.Tools {
			q.tools = append(q.tools, inner.Name)
			spaces[inner.Name] = t.Name
		}
	}
	var items []responsesItem
	if json.Unmarshal(r.Input, &items) != nil {
		return q, spaces // plain text
	}
	calls := map[string]bool{}
	for _, i := range items {
		switch {
		case i.Type == "function_call":
			calls[i.CallID] = s.wants(i.Name)
			q.searched = q.searched || isSearch(i.Name)
		case i.Type == "function_call_output" && calls[i.CallID]:
			q.results = append(q.results, text(i.Output))
		}
	}
	return q, spaces
}

func responsesAnswer(s *Server, w http.ResponseWriter, _ *http.Request, r *responsesRequest) {
	q, spaces := r.question(s.script)
	a := s.answer(q)
	part := object{"type": "output_text", "text": a.text, "annotations": []object{}}
	item := object{"type": "message", "id": s.id("msg"), "role": "assistant", "status": "completed", "content": []object{part}}
	if a.tool != "" {
		item = object{"type": "function_call", "id": s.id("fc"), "call_id": s.id("call"), "status": "completed", "name": a.tool, "arguments": a.arguments}
		if space := spaces[a.tool]; space != "" {
			item["namespace"] = space
		}
	}
	response := object{
		"id": s.id("resp"), "object": "response", "created_at": 1, "model": r.Model, "status": "completed",
		"output": []object{item}, "parallel_tool_calls": false, "tool_choice": "auto", "tools": []object{},
		"usage": object{
			"input_tokens": 1, "input_tokens_details": object{"cached_tokens": 0},
			"output_tokens": 1, "output_tokens_details": object{"reasoning_tokens": 0}, "total_tokens": 2,
		},
	}
	if !r.Stream {
		reply(w, response)
		return
	}
	e := newEvents(w)
	e.numbered("response.created", object{"response": with(response, object{"status": "in_progress", "output": []object{}, "usage": nil})})
	if a.tool != "" {
		streamCall(e, item)
	} else {
		streamText(e, item, part)
	}
	e.numbered("response.output_item.done", object{"output_index": 0, "item": item})
	e.numbered("response.completed", object{"response": response})
}

func streamCall(e *events, item object) {
	e.numbered("response.output_item.added", object{"output_index": 0, "item": with(item, object{"status": "in_progress", "arguments": ""})})
	e.numbered("response.function_call_arguments.delta", object{"output_index": 0, "item_id": item["id"], "delta": item["arguments"]})
	e.numbered("response.function_call_arguments.done", object{"output_index": 0, "item_id": item["id"], "name": item["name"], "arguments": item["arguments"]})
}

func streamText(e *events, item, part object) {
	at := func(more object) object {
		return with(more, object{"output_index": 0, "content_index": 0, "item_id": item["id"]})
	}
	e.numbered("response.output_item.added", object{"output_index": 0, "item": with(item, object{"status": "in_progress", "content": []object{}})})
	e.numbered("response.content_part.added", at(object{"part": with(part, object{"text": ""})}))
	e.numbered("response.output_text.delta", at(object{"delta": part["text"]}))
	e.numbered("response.output_text.done", at(object{"text": part["text"]}))
	e.numbered("response.content_part.done", at(object{"part": part}))
}

// with returns a copy of an object with other members.
func with(base, other object) object {
	all := maps.Clone(base)
	maps.Copy(all, other)
	return all
}
