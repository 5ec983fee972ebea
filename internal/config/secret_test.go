package config_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/goccy/go-yaml"

	"github.com/thoughtgate/thoughtgate-go/internal/config"
)

const secretText = "hunter2"

func TestSecretReveals(t *testing.T) {
	if got := config.NewSecret(secretText).Reveal(); got != secretText {
		t.Errorf("Reveal() is %q", got)
	}
	if got := (config.Secret{}).Reveal(); got != "" {
		t.Errorf("Reveal() of the zero Secret is %q", got)
	}
}

func TestSecretDoesNotPrint(t *testing.T) {
	s := config.NewSecret(secretText)
	u := struct{ Headers map[string]config.Secret }{map[string]config.Secret{"X-Api-Key": s}}
	values := map[string]any{"plain": s, "pointer": &s, "inside": u, "pointer to outside": &u, "list": []config.Secret{s}}
	var out strings.Builder
	for _, v := range values {
		for verb := range 0x80 {
			fmt.Fprintf(&out, "%"+string(rune(verb))+"%+"+string(rune(verb))+"%#"+string(rune(verb)), v, v, v)
		}
		fmt.Fprintln(&out, v, fmt.Errorf("x: %w", fmt.Errorf("%v", v)), fmt.Sprint(reflect.ValueOf(v)))
		for _, marshal := range []func(any) ([]byte, error){
			json.Marshal,
			func(v any) ([]byte, error) { return jsonv2.Marshal(v) },
			yaml.Marshal,
		} {
			text, err := marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(text)
		}
		var log bytes.Buffer
		slog.New(slog.NewJSONHandler(&log, nil)).LogAttrs(context.Background(), slog.LevelInfo, "m", slog.Any("v", v))
		slog.New(slog.NewTextHandler(&log, nil)).LogAttrs(context.Background(), slog.LevelInfo, "m", slog.Any("v", v))
		out.Write(log.Bytes())
	}
	encodings := []string{secretText, fmt.Sprintf("%x", secretText), fmt.Sprintf("%X", secretText), fmt.Sprintf("% x", secretText), fmt.Sprintf("%d", []byte(secretText))}
	for _, e := range encodings {
		if strings.Contains(out.String(), e) {
			t.Errorf("the secret is printed as %q", e)
		}
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(format, s); got != "[secret]" {
			t.Errorf("%s prints %q", format, got)
		}
	}
}
