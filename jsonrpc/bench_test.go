package jsonrpc_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/thoughtgate/thoughtgate-go/jsonrpc"
)

// normalCall is a typical tools/call.
const normalCall = `{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"read_file","arguments":{"path":"/srv/data/report.txt","limit":200},"_meta":{"progressToken":7}}}`

// callWith returns a tools/call with the given arguments.
func callWith(arguments string) []byte {
	return []byte(`{"jsonrpc":"2.0","id":42,"method":"tools/call","params":{"name":"write_file","arguments":` + arguments + `,"_meta":{"progressToken":7}}}`)
}

// stringCall is a call of about size bytes, mostly one string.
func stringCall(size int) []byte {
	head := len(callWith(`{"text":""}`))
	return callWith(`{"text":"` + strings.Repeat("lorem ipsum ", size/12+1)[:size-head] + `"}`)
}

// proseCall is a call of about size bytes, mostly text with escapes.
func proseCall(size int) []byte {
	const text = `The north bridge carries 4,120 cars a day.\nIts \"winter\" load is lower, see C:\\data\\bridges; the caf\u00e9 Zoë closes at 18:00. `
	return callWith(`{"text":"` + strings.Repeat(text, size/len(text)) + `"}`)
}

// membersCall is a call with n arguments of about 45 bytes.
func membersCall(n int) []byte {
	var args []string
	for i := range n {
		args = append(args, fmt.Sprintf(`"argument_%02d":"the value of number %06d"`, i, i))
	}
	return callWith("{" + strings.Join(args, ",") + "}")
}

// deepCall is a call of about 1 KiB with arguments nested 30 deep.
func deepCall() []byte {
	return callWith(strings.Repeat(`{"path":"/srv/data","child_node":`, 28) + "null" + strings.Repeat("}", 28))
}

// denseCall is a call of about 1 KiB with many short tokens.
func denseCall() []byte {
	return callWith(strings.Repeat(`{"a":[1,2,"three",`, 45) + "null" + strings.Repeat("]}", 45))
}

// CORE-003 NFR-002, parse latency.
func BenchmarkParse(b *testing.B) {
	inputs := []struct {
		name string
		data []byte
	}{
		{"ping", []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)},
		{"call", []byte(normalCall)},
		{"1KiB/string", stringCall(1024)},
		{"1KiB/prose", proseCall(1024)},
		{"1KiB/members", membersCall(20)},
		{"1KiB/deep", deepCall()},
		{"1KiB/dense", denseCall()},
		{"64KiB/string", stringCall(64 << 10)},
		{"64KiB/prose", proseCall(64 << 10)},
		{"64KiB/code", callWith(`{"text":"` + strings.Repeat(`\tif x := \"a\"; x != nil {\n\t\treturn\n\t}\n`, 1400) + `"}`)},
		{"64KiB/members", membersCall(1400)},
		{"64KiB/records", callWith("[" + strings.Repeat(`{"id":123456,"name":"a name","tags":["x","y"],"ok":true},`, 1150) + "null]")},
	}
	for _, in := range inputs {
		b.Run(in.name, func(b *testing.B) {
			b.SetBytes(int64(len(in.data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := jsonrpc.Parse(in.data, jsonrpc.Limits{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkFramer(b *testing.B) {
	small := []byte("event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
	streams := []struct {
		name string
		data []byte
	}{
		{"1MiB event", []byte("data: " + strings.Repeat("x", 1<<20) + "\n\n")},
		{"small events", bytes.Repeat(small, 1<<20/len(small))},
		{"1MiB event in lines", append(bytes.Repeat([]byte("data: 0123456789abcdef0123456789abcdef\n"), 1<<20/39), '\n')},
	}
	for _, s := range streams {
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(int64(len(s.data)))
			b.ReportAllocs()
			var f jsonrpc.Framer
			for b.Loop() {
				for at := 0; at < len(s.data); at += 32 << 10 {
					f.Advance(s.data[at:min(at+32<<10, len(s.data))])
				}
			}
		})
	}
}

func BenchmarkEventReader(b *testing.B) {
	small := []byte("event: message\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
	streams := []struct {
		name string
		data []byte
	}{
		{"1MiB event", []byte("data: " + strings.Repeat("x", 1<<20) + "\n\n")},
		{"small events", bytes.Repeat(small, 1<<20/len(small))},
	}
	for _, s := range streams {
		b.Run(s.name, func(b *testing.B) {
			b.SetBytes(int64(len(s.data)))
			b.ReportAllocs()
			for b.Loop() {
				r := jsonrpc.NewEventReader(bytes.NewReader(s.data), 2<<20)
				for {
					if _, err := r.Next(); err != nil {
						break
					}
				}
			}
		})
	}
}

func BenchmarkLineReader(b *testing.B) {
	data := bytes.Repeat([]byte(normalCall+"\n"), 1000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		r := jsonrpc.NewLineReader(bytes.NewReader(data), 1<<20)
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
}

func BenchmarkPatch(b *testing.B) {
	data := membersCall(20)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		packet, err := jsonrpc.Parse(data, jsonrpc.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		m := packet.Messages[0]
		var p jsonrpc.Patch
		p.Replace(m.ID, []byte(`"tg_1"`))
		p.Set(m.Params.Meta, "traceparent", []byte(`"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`))
		p.Apply(data)
	}
}

func BenchmarkResponseReader(b *testing.B) {
	messages := []struct {
		name, result string
	}{
		{"1MiB text", `{"content":[{"type":"text","text":"` + strings.Repeat("x", 1<<20) + `"}]}`},
		{"1MiB numbers", `{"rows":[` + strings.Repeat("1234567,", 1<<17) + `0]}`},
		{"1KiB text", `{"content":[{"type":"text","text":"` + strings.Repeat("x", 1<<10) + `"}]}`},
	}
	for _, m := range messages {
		b.Run(m.name, func(b *testing.B) {
			data := []byte(`{"jsonrpc":"2.0","id":1,"result":` + m.result + `}`)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				r := jsonrpc.NewResponseReader(bytes.NewReader(data))
				if _, err := r.Head(); err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The scanner of relayed answers, compared with the validating reader.
func BenchmarkLargeAnswer(b *testing.B) {
	texts := map[string]string{
		"text":    `{"content":[{"type":"text","text":"` + strings.Repeat("lorem ipsum dolor ", 1<<20/18) + `"}]}`,
		"items":   `{"items":[` + strings.Repeat(`{"id":12345,"name":"item name","ok":true,"v":[1,2.5]},`, 1<<20/54) + `0]}`,
		"prose":   `{"content":[{"type":"text","text":"` + strings.Repeat(`The north bridge carries 4,120 cars a day.\nIts \"winter\" load is lower, see C:\\data\\bridges. `, 1<<20/95) + `"}]}`,
		"escapes": `{"content":[{"type":"text","text":"` + strings.Repeat(`{\"a\":\"b\",\n`, 1<<20/14) + `"}]}`,
	}
	for name, result := range texts {
		text := []byte(`{"jsonrpc":"2.0","id":1,"result":` + result + `}`)
		event := slices.Concat([]byte("data: "), text, []byte("\n\n"))
		b.Run(name+"/AnswerScanner", func(b *testing.B) {
			benchmarkScan(b, text, func() func([]byte) error { return new(jsonrpc.AnswerScanner).Scan })
		})
		b.Run(name+"/EventScanner", func(b *testing.B) {
			benchmarkScan(b, event, func() func([]byte) error { return new(jsonrpc.EventScanner).Scan })
		})
		b.Run(name+"/ResponseReader", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			piece := make([]byte, 64<<10)
			for b.Loop() {
				r := jsonrpc.NewResponseReader(bytes.NewReader(text))
				_, err := r.Head()
				for err == nil {
					_, err = r.Read(piece)
				}
			}
		})
	}
}

func benchmarkScan(b *testing.B, text []byte, start func() func([]byte) error) {
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		scan := start()
		for piece := range slices.Chunk(text, 64<<10) {
			if err := scan(piece); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkCores parses on all processors concurrently.
func BenchmarkCores(b *testing.B) {
	data := stringCall(1024)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := jsonrpc.Parse(data, jsonrpc.Limits{}); err != nil {
				b.Error(err)
			}
		}
	})
}
