package natsauth

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/cbcast/cbcast/internal/subject"
)

// Static writes the configuration of a server with one account for each tenant, and
// in it a user for each role, known by an nkey. The edges of a tenant are one user:
// these accounts keep tenants apart, and no two runs of one. Keys that exist stay. It
// returns the files of the users' environments.
func (s Store) Static(tenants []string) (envs []string, err error) {
	if len(tenants) == 0 {
		return nil, errors.New("no tenant")
	}
	var b strings.Builder
	b.WriteString("system_account: \"$SYS\"\naccounts {\n  \"$SYS\": {}\n")
	for _, tenant := range tenants {
		fmt.Fprintf(&b, "  %q: {\n    jetstream: enabled\n    users: [\n", "cbcast_"+subject.Token(tenant))
		for _, role := range Roles {
			env, err := s.staticUser(&b, tenant, role)
			if err != nil {
				return nil, fmt.Errorf("tenant %s, %s: %w", tenant, role, err)
			}
			envs = append(envs, env)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("}\n")
	return envs, s.conf(b.String())
}

func (s Store) staticUser(b *strings.Builder, tenant string, role Role) (env string, err error) {
	name := subject.Token(tenant) + "-" + string(role)
	key, err := s.key(name, nkeys.PrefixByteUser)
	if err != nil {
		return "", err
	}
	g := Grant{Role: role, Partitions: s.Partitions, Inbox: inbox(tenant, string(role))}
	if role == Edge {
		g.Tenant = tenant
	}
	p, err := g.Permissions()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(b, "      { # %s\n        nkey: %s\n        permissions: {\n", role, public(key))
	fmt.Fprintf(b, "          publish: { allow: [\n%s          ]", quoted(p.Publish))
	if len(p.Deny) > 0 {
		fmt.Fprintf(b, ", deny: [\n%s          ]", quoted(p.Deny))
	}
	b.WriteString(" }\n")
	fmt.Fprintf(b, "          subscribe: { allow: [\n%s          ] }\n        }\n      }\n", quoted(p.Subscribe))
	file, err := filepath.Abs(s.keyFile(name))
	if err != nil {
		return "", err
	}
	env = s.path("env", name+".env")
	vars := [][2]string{{"CBCAST_NATS_NKEY", file}, {"CBCAST_NATS_INBOX_PREFIX", g.Inbox}, {"CBCAST_TENANT", tenant}}
	return env, write(env, s.env(vars...))
}

func quoted(list []string) string {
	var b strings.Builder
	for _, subj := range sorted(list) {
		fmt.Fprintf(&b, "            %q\n", subj)
	}
	return b.String()
}
