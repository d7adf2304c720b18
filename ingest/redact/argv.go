package redact

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
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

// subcommands stay as they are, the first that stands there: codex takes flags before it.
var subcommands = map[string]bool{
	"app-server": true, "exec": true, "proto": true, "mcp": true, "mcp-server": true, "resume": true, "daemon": true,
}

// plainValue is what a value of a variadic flag looks like that is no prompt:
// a tool, perhaps with a pattern, a path, a name.
var plainValue = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([A-Za-z][\w-]*(\([^)]*\))?[, ]?)+$|^\.{0,2}/\S*$|^[\w.-]+$`)
})

// MaskArgv returns argv with everything masked that may be a prompt, a
// configuration or a secret, and how many arguments that were. A masked
// argument (for --flag=value its value) becomes "<bytes>:<hash>", hash being
// [Redactor.Hash]. Flags stay, and so do the values of flags that are known to
// be harmless; the value of an unknown flag is masked.
func (r *Redactor) MaskArgv(argv []string) ([]string, int) {
	a := argvMasker{r: r, out: append([]string(nil), argv...)}
	for a.i = 1; a.i < len(a.out); a.i++ {
		switch arg := a.out[a.i]; {
		case arg == "--":
			for a.i++; a.i < len(a.out); a.i++ {
				a.hide(0)
			}
		case !strings.HasPrefix(arg, "-") || arg == "-":
			if a.sub || !subcommands[arg] {
				a.hide(0)
				break
			}
			a.sub = true
		default:
			a.flag(arg)
		}
	}
	return a.out, a.n
}

// An argvMasker is at argument i.
type argvMasker struct {
	r   *Redactor
	out []string
	i   int
	n   int  // masked so far
	sub bool // a subcommand was seen: words behind it are arguments
}

// hide masks the argument from its byte from on.
func (a *argvMasker) hide(from int) {
	v := a.out[a.i][from:]
	a.out[a.i] = fmt.Sprintf("%s%d:%s", a.out[a.i][:from], len(v), a.r.Hash([]byte(v)))
	a.n++
}

// keep leaves the argument as it is, unless a secret is in it.
func (a *argvMasker) keep(from int) {
	if v := a.out[a.i][from:]; a.r.holdsSecret(v) {
		a.hide(from)
	}
}

// remember masks the value of a flag that names a secret wherever the child
// repeats it. Prompts and configurations are no secrets as a whole.
func (a *argvMasker) remember(name, value string) {
	if secretName(name) {
		a.r.Remember(value, "argv")
	}
}

// more reports whether the next argument is no flag.
func (a *argvMasker) more() bool {
	return a.i+1 < len(a.out) && !strings.HasPrefix(a.out[a.i+1], "-")
}

// flag handles a flag and the values that belong to it.
func (a *argvMasker) flag(arg string) {
	name, _, eq := strings.Cut(arg, "=")
	kind, known := flags[name]
	if secretName(name) && kind != boolean {
		kind, known = secret, true
	}
	switch {
	case strings.ContainsAny(name, " \t\n"): // a prompt that begins with a hyphen
		a.hide(0)
		return
	case eq && kind == secret:
		a.remember(name, arg[len(name)+1:])
		a.hide(len(name) + 1)
		return
	case eq:
		a.keep(len(name) + 1)
		return
	}
	a.keep(0) // a key glued to a flag
	switch {
	case kind == one && a.more():
		a.i++
		if strings.ContainsAny(a.out[a.i], " \t\n") {
			a.hide(0) // no value of these flags has spaces
		} else {
			a.keep(0)
		}
	case kind == variadic:
		for a.more() {
			a.i++
			if plainValue().MatchString(a.out[a.i]) {
				a.keep(0)
			} else {
				a.hide(0)
			}
		}
	case kind == secret && known && a.i+1 < len(a.out):
		// Whatever follows is its value, also with a hyphen.
		a.i++
		a.remember(name, a.out[a.i])
		a.hide(0)
		for many[name] && a.more() {
			a.i++
			a.hide(0)
		}
	}
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
