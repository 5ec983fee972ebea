package model

import (
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// geminiRequest is a request of Google's generateContent API.
type geminiRequest struct {
	Contents []struct {
		Parts []struct {
			Text             string `json:"text"`
			FunctionResponse *struct {
				Name     string                    `json:"name"`
				Response map[string]jsontext.Value `json:"response"`
			} `json:"functionResponse"`
		} `json:"parts"`
	} `json:"contents"`
	Tools []struct {
		FunctionDeclarations []struct {
			Name string `json:"name"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
	GenerationConfig struct {
		ResponseMimeType string `json:"responseMimeType"`
	} `json:"generationConfig"`
}

func (r *geminiRequest) question(s Script) question {
	q := question{api: "gemini"}
	for _, t := range r.Tools {
		for _, f := range t.FunctionDeclarations {
			q.tools = append(q.tools, f.Name)
		}
	}
	for _, c := range r.Contents {
		for _, p := range c.Parts {
			q.prompt += p.Text
			if f := p.FunctionResponse; f != nil && s.wants(f.Name) {
				q.results = append(q.results, geminiResult(f.Response))
			}
		}
	}
	return q
}

func geminiResult(response map[string]jsontext.Value) string {
	for _, name := range []string{"output", "error"} {
		if value, ok := response[name]; ok {
			return strings.TrimPrefix("["+name+"] ", "[output] ") + text(value)
		}
	}
	return "neither output nor error"
}

// geminiForm is the form of answers to Gemini CLI's internal requests: which model should
// answer, and which participant speaks next.
const geminiForm = `{"complexity_score":1,"complexity_reasoning":"scripted","reasoning":"scripted","model_choice":"flash","next_speaker":"user"}`

func geminiAnswer(s *Server, w http.ResponseWriter, h *http.Request, r *geminiRequest) {
	a := s.answer(r.question(s.script))
	if len(r.Tools) == 0 && r.GenerationConfig.ResponseMimeType == "application/json" {
		a.text = geminiForm
	}
	part := object{"text": a.text}
	if a.tool != "" {
		part = object{"functionCall": object{"id": s.id("call"), "name": a.tool, "args": jsontext.Value(a.arguments)}}
	}
	answer := object{
		"candidates":    []object{{"index": 0, "finishReason": "STOP", "content": object{"role": "model", "parts": []object{part}}}},
		"usageMetadata": object{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
		"modelVersion":  "scripted",
	}
	if strings.Contains(h.URL.Path, ":stream") {
		newEvents(w).data(answer)
		return
	}
	reply(w, answer)
}
