package redact

import (
	"fmt"
	"regexp"
	"strings"
)

// What the value of a flag is. The list holds the flags of cbc, claude and
// codex whose values are kept; the value of any other flag is masked, for it
// may be a prompt.
type flagKind int

const (
	secret   flagKind = iota // masked, like the value of a flag that is not listed
	one                      // one value, kept
	boolean                  // none: what follows is a prompt or another flag
	variadic                 // every argument up to the next flag
)

var flags = map[string]flagKind{
	"--input-format": one, "--output-format": one, "--model": one, "-m": one, "--fallback-model": one,
	"--permission-mode": one, "--permission-prompt-tool": one, "--max-turns": one, "--max-budget-usd": one,
	"--max-thinking-tokens": one, "--effort": one, "--session-id": one, "--setting-sources": one, "--resume": one, "-r": one,
	"--resume-session-at": one, "--agent": one, "--debug-file": one, "--sandbox": one, "-s": one, "--cd": one, "-C": one,
	"--profile": one, "--ask-for-approval": one, "-a": one, "--append-system-prompt-file": one, "--system-prompt-file": one,
	"--name": one, "-n": one, "--listen": one,

	"-p": boolean, "--print": boolean, "-y": boolean, "--dangerously-skip-permissions": boolean, "--verbose": boolean,
	"--allow-dangerously-skip-permissions": boolean, "--include-partial-messages": boolean, "--replay-user-messages": boolean,
	"--include-hook-events": boolean, "--continue": boolean, "-c": boolean, "--fork-session": boolean, "--debug": boolean,
	"-d": boolean, "--strict-mcp-config": boolean, "--no-session-persistence": boolean, "--json": boolean, "--full-auto": boolean,
	"--ide": boolean, "--chrome": boolean, "--no-chrome": boolean, "--bare": boolean, "--disable-slash-commands": boolean,
	"--skip-git-repo-check": boolean, "--enable-auth-status": boolean, "--version": boolean, "-v": boolean, "--help": boolean, "-h": boolean,

	"--allowedTools": variadic, "--allowed-tools": variadic, "--disallowedTools": variadic, "--disallowed-tools": variadic,
	"--tools": variadic, "--add-dir": variadic, "--plugin-dir": variadic, "--betas": variadic,

	"--append-system-prompt": secret, "--system-prompt": secret, "--settings": secret, "--mcp-config": secret,
	"--agents": secret, "--json-schema": secret, "--prompt": secret, "--prefill": secret, "--config": secret,
}

// many are masked flags that take every argument up to the next flag.
var many = map[string]bool{"--mcp-config": true}

// subcommands may stand behind the program's name as they are.
var subcommands = map[string]bool{
	"app-server": true, "exec": true, "proto": true, "mcp": true, "mcp-server": true, "resume": true, "daemon": true,
}

// plainValue is what a value of a variadic flag looks like that is no prompt:
// a tool, perhaps with a pattern, a path, a name.
var plainValue = regexp.MustCompile(`^([A-Za-z][\w-]*(\([^)]*\))?[, ]?)+$|^\.{0,2}/\S*$|^[\w.-]+$`)

// MaskArgv returns argv with everything masked that may be a prompt, a
// configuration or a secret, and how many arguments that were. A masked
// argument (for --flag=value its value) becomes "<bytes>:<hash>", hash being
// [Redactor.Hash]. Flags stay, and so do the values of flags that are known to
// be harmless; the value of an unknown flag is masked.
func (r *Redactor) MaskArgv(argv []string) ([]string, int) {
	out := append([]string(nil), argv...)
	n := 0
	hide := func(i, from int) {
		v := out[i][from:]
		out[i] = out[i][:from] + fmt.Sprintf("%d:%s", len(v), r.Hash([]byte(v)))
		n++
	}
	keep := func(i, from int) {
		if from < len(out[i]) && r.holdsSecret(out[i][from:]) {
			hide(i, from)
		}
	}
	for i := 1; i < len(out); i++ {
		a := out[i]
		if a == "--" {
			for i++; i < len(out); i++ {
				hide(i, 0)
			}
			break
		}
		if !strings.HasPrefix(a, "-") || a == "-" {
			if i == 1 && subcommands[a] {
				continue
			}
			hide(i, 0)
			continue
		}
		name, _, eq := strings.Cut(a, "=")
		kind, known := flags[name]
		if secretName(name) && kind != boolean {
			kind, known = secret, true
		}
		if strings.ContainsAny(name, " \t\n") { // a prompt that begins with a hyphen
			hide(i, 0)
			continue
		}
		if eq {
			if kind == secret || !known {
				hide(i, len(name)+1)
			} else {
				keep(i, len(name)+1)
			}
			continue
		}
		keep(i, 0) // a shape glued to a flag
		isValue := func() bool { return i+1 < len(out) && !strings.HasPrefix(out[i+1], "-") }
		switch {
		case kind == one && isValue():
			i++
			if strings.ContainsAny(out[i], " \t\n") {
				hide(i, 0) // no value of these flags has spaces
			} else {
				keep(i, 0)
			}
		case kind == variadic:
			for isValue() {
				i++
				if plainValue.MatchString(out[i]) {
					keep(i, 0)
				} else {
					hide(i, 0)
				}
			}
		case kind == secret && known && i+1 < len(out):
			// Whatever follows is its value, also with a hyphen.
			i++
			hide(i, 0)
			for many[name] && isValue() {
				i++
				hide(i, 0)
			}
		}
	}
	return out, n
}

// holdsSecret reports whether a shape or a remembered value is in s.
func (r *Redactor) holdsSecret(s string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = r.spans[:0]
	r.scan("", []byte(s))
	for _, re := range r.patterns {
		if re.MatchString(s) {
			return true
		}
	}
	return len(r.spans) > 0
}
