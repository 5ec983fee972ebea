package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/thoughtgate/thoughtgate-go/bench/proc"
)

// installed returns the targets that are installed.
func installed() []string {
	return slices.DeleteFunc(allTargets(), func(name string) bool { return name == targetNginx && nginxPath() == "" })
}

// nginxPath returns the path of nginx, or nothing. Debian installs it outside the usual PATH.
func nginxPath() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// nginxConfig makes nginx forward events at once, as an MCP gateway must, and keep
// connections. It is one process, whose CPU time and memory can be read.
const nginxConfig = `daemon off;
master_process off;
pid %[1]s/nginx.pid;
error_log stderr warn;
worker_rlimit_nofile 20000;
events { worker_connections 40000; }
http {
	access_log off;
	client_body_temp_path %[1]s/nginx-body;
	proxy_temp_path %[1]s/nginx-proxy;
	fastcgi_temp_path %[1]s/nginx-fastcgi;
	uwsgi_temp_path %[1]s/nginx-uwsgi;
	scgi_temp_path %[1]s/nginx-scgi;
	client_max_body_size 0;
	client_body_buffer_size 1m;
	keepalive_requests 1000000000;
	upstream mcp { server %[2]s; keepalive 256; keepalive_requests 1000000000; }
	server {
		listen %[3]s backlog=4096;
		location / {
			proxy_pass http://mcp;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_set_header Host $host;
			proxy_buffering off;
			proxy_read_timeout 10m;
		}
	}
}
`

// nginx returns the command that starts nginx.
func (b *bench) nginx(ctx context.Context, upstream *proc.Process) (proc.Command, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return proc.Command{}, err
	}
	file := filepath.Join(b.dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, nginxConfig, b.dir, upstream.Agents, address), 0o600); err != nil {
		return proc.Command{}, err
	}
	return proc.Command{
		Name: targetNginx, Path: nginxPath(), Dir: b.dir, Agents: address,
		Args: []string{"-e", "stderr", "-p", b.dir, "-c", file},
	}, nil
}

// freeAddress returns an unused loopback address.
func freeAddress(ctx context.Context) (string, error) {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
