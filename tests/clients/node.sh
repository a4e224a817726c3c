#!/bin/sh
. "$TESTS/lib/client.sh"

works() {
	node - <<'END'
const fs = require("fs"), assert = require("assert");
fs.writeFileSync("f", "x".repeat(300000));
fs.appendFileSync("f", "end");
assert.strictEqual(fs.readFileSync("f", "utf8").length, 300003);
fs.mkdirSync("d/e", { recursive: true });
fs.copyFileSync("f", "d/e/f");
fs.rmSync("d", { recursive: true });
fs.writeFileSync("ctl/exec", JSON.stringify(["sh", "-c", "wc -c <f; exit 6"]));
assert.strictEqual(fs.readFileSync("ctl/stdout", "utf8").trim(), "300003");
assert.strictEqual(fs.readFileSync("ctl/status", "utf8").split(" ")[0], "6");
const fd = fs.openSync("ctl/exec", "r+");
fs.writeSync(fd, "echo same file\n");
assert.strictEqual(JSON.parse(fs.readFileSync(fd, "utf8")).stdout, "same file\n");
fs.closeSync(fd);
END
}

streams() {
	node - <<'END'
const fs = require("fs"), assert = require("assert");
const w = fs.createWriteStream("s");
for (let i = 0; i < 1000; i++) w.write("line " + i + "\n");
w.end(() => {
  assert.strictEqual(fs.readFileSync("s", "utf8").split("\n").length, 1001);
  fs.promises.writeFile("ctl/exec", "echo promised\n").then(() =>
    assert.strictEqual(fs.readFileSync("ctl/stdout", "utf8"), "promised\n"));
});
END
}

promises() {
	node - <<'END'
const fs = require("fs").promises, assert = require("assert");
(async () => {
  const refused = (doing) => doing.then(() => assert.fail("was not refused"), (e) => e.code);
  await fs.writeFile("ctl/exec", "sh -c 'echo promised; exit 5'");
  assert.strictEqual(await fs.readFile("ctl/stdout", "utf8"), "promised\n");
  assert.match(await fs.readFile("ctl/status", "utf8"), /^5 exited/);
  await fs.writeFile("ctl/exec.tmp", "echo renamed");
  await fs.rename("ctl/exec.tmp", "ctl/exec");
  assert.strictEqual(await fs.readFile("ctl/stdout", "utf8"), "renamed\n");
  await fs.writeFile("request", "echo copied");
  await fs.copyFile("request", "ctl/exec");
  assert.strictEqual(await fs.readFile("ctl/stdout", "utf8"), "copied\n");
  assert.strictEqual(await refused(fs.writeFile("ctl/exec", "x", { flag: "wx" })), "EEXIST");
  assert.strictEqual(await refused(fs.writeFile("ctl/exec", "no-such-program\n")), "ENOENT");
  assert.match(await fs.readFile("ctl/error", "utf8"), /no-such-program/);
  await fs.writeFile("ctl/exec.tmp", "echo a | b");
  assert.strictEqual(await refused(fs.rename("ctl/exec.tmp", "ctl/exec")), "EINVAL");
  await fs.unlink("ctl/exec.tmp");
  const file = await fs.open("ctl/exec", "r+");
  await file.write("echo one file\n");
  assert.strictEqual(JSON.parse(await file.readFile("utf8")).stdout, "one file\n");
  await file.close();
})().catch((e) => { console.error(e); process.exit(1); });
END
}

reports() {
	node -e '
const fs = require("fs");
try { fs.writeFileSync("ctl/exec", "no-such-program\n"); process.exit(1); }
catch (e) { process.exit(e.code === "ENOENT" ? 0 : 2); }'
}

begin node
claim "node writes, reads, runs commands" works
claim "node streams and promises" streams
claim "node fs.promises writes, renames, copies requests, gets refusals and results" promises
claim "node gets the errno as an exception" reports
end
