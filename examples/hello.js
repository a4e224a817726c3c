#!/usr/bin/env node
// hello.js MNT: a sandbox from Node, with nothing but files.
const fs = require("fs");

const box = `${process.argv[2]}/hello-js-${process.pid}`;
fs.mkdirSync(box);
try {
  fs.writeFileSync(box + "/greeting", "Hello from Node\n");
  fs.writeFileSync(box + "/ctl/exec", JSON.stringify(["sh", "-c", "cat greeting; exit 3"]));
  process.stdout.write(fs.readFileSync(box + "/ctl/stdout"));
  const [code, how] = fs.readFileSync(box + "/ctl/status", "utf8").split(" ");
  console.log(how, "with", code);
} finally {
  fs.rmdirSync(box);
}
