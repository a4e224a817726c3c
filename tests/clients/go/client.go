// Writes a request, sees a refusal, reads the result; in the directory of a sandbox.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

func check(holds bool, words ...any) {
	if !holds {
		fmt.Fprintln(os.Stderr, words...)
		os.Exit(1)
	}
}

func read(path string) string {
	text, err := os.ReadFile(path)
	check(err == nil, err)
	return string(text)
}

func write(path, text string) {
	err := os.WriteFile(path, []byte(text), 0o644)
	check(err == nil, err)
}

func refused(err error, want syscall.Errno) {
	check(errors.Is(err, want), "want", want, "have", err)
}

func files() {
	write("f", "by go")
	check(read("f") == "by go", read("f"))
	check(os.MkdirAll("d/e", 0o755) == nil, "MkdirAll")
	check(os.Rename("f", "d/e/f") == nil, "Rename")
	entries, err := os.ReadDir("d/e")
	check(err == nil && len(entries) == 1 && entries[0].Name() == "f", entries, err)
	check(os.RemoveAll("d") == nil, "RemoveAll")
}

func requests() {
	write("ctl/exec", "sh -c 'echo from go; exit 5'")
	check(read("ctl/stdout") == "from go\n", read("ctl/stdout"))
	check(strings.HasPrefix(read("ctl/status"), "5 exited"), read("ctl/status"))
	write("ctl/exec.tmp", "echo renamed")
	check(os.Rename("ctl/exec.tmp", "ctl/exec") == nil, "Rename")
	check(read("ctl/stdout") == "renamed\n", read("ctl/stdout"))
	file, err := os.OpenFile("ctl/exec", os.O_RDWR, 0)
	check(err == nil, err)
	defer file.Close()
	_, err = file.WriteString("echo one file\n")
	check(err == nil, err)
	text, err := io.ReadAll(file)
	check(err == nil, err)
	var result struct{ Stdout string }
	check(json.Unmarshal(text, &result) == nil && result.Stdout == "one file\n", string(text))
}

func refusals() {
	refused(os.WriteFile("ctl/exec", []byte("no-such-program\n"), 0o644), syscall.ENOENT)
	check(strings.Contains(read("ctl/error"), "no-such-program"), read("ctl/error"))
	check(strings.HasPrefix(read("ctl/status"), "127 failed"), read("ctl/status"))
	write("ctl/exec.tmp", "echo a | b")
	refused(os.Rename("ctl/exec.tmp", "ctl/exec"), syscall.EINVAL)
	check(os.Remove("ctl/exec.tmp") == nil, "Remove")
	refused(os.WriteFile("ctl/status", []byte("x"), 0o644), syscall.EACCES)
	_, err := os.OpenFile("ctl/exec", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	refused(err, syscall.EEXIST)
	// Without a newline, the request ends with the close, and its refusal is Close's.
	file, err := os.OpenFile("ctl/exec", os.O_WRONLY, 0)
	check(err == nil, err)
	_, err = file.WriteString("no-such-program")
	check(err == nil, err)
	refused(file.Close(), syscall.ENOENT)
}

func main() {
	map[string]func(){"files": files, "requests": requests, "refusals": refusals}[os.Args[1]]()
}
