// The official SDK does on the loopback server what sandboxfs asks of an engine, and what the
// interface of a sandbox needs: run, write, read, delete, list, change directory, export, refresh.
//
//   node scenario.mjs SDK ROOM REPOSITORY
//
// SDK is the directory of the package, ROOM an empty one; the session is in the environment. Prints
// TAP.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import { pathToFileURL } from 'node:url'

const [sdk, room, repository] = process.argv.slice(2)
const entry = JSON.parse(fs.readFileSync(`${sdk}/package.json`)).exports['.']
const { connection, dag, ReturnType } = await import(
  pathToFileURL(`${sdk}/${entry.import ?? entry}`).href)
let number = 0
let box
let nonce = 0

async function claim(text, body) {
  number++
  try {
    await body()
    console.log(`ok ${number} - ${text}`)
  } catch (error) {
    console.log(`not ok ${number} - ${text}`)
    console.log(String(error.stack ?? error).replace(/^/gm, '# '))
  }
}

async function exec(script) {
  const done = box.withEnvVariable('NONCE', String(++nonce))
    .withExec(['sh', '-c', script], { expect: ReturnType.Any })
  const result = { code: await done.exitCode(), out: await done.stdout(),
    err: await done.stderr() }
  box = await done.sync()
  return result
}

async function scenario() {
  await claim('a container is made from an image', async () => {
    box = await dag.container().from('docker.io/library/alpine:3.20').withWorkdir('/work')
      .withLabel('a', 'b').withNewFile('/work/.keep', '').sync()
    assert.equal(await box.workdir(), '/work')
    assert.equal(await box.label('a'), 'b')
  })
  await claim('a command has an exit code and both streams', async () => {
    assert.deepEqual(await exec('echo out; echo err >&2; exit 3'),
      { code: 3, out: 'out\n', err: 'err\n' })
  })
  await claim('what it has made is there for the next', async () => {
    await exec('echo made >made')
    assert.equal((await exec('cat made')).out, 'made\n')
  })
  await claim('a command that ends by a signal is an error, and changes nothing', async () => {
    const before = box
    await assert.rejects(exec('echo lost >lost; kill -9 $$'), (error) => error.exitCode === 137)
    box = before
    assert.equal((await exec('ls')).out, 'made\n')
  })
  await claim('a file is written and read', async () => {
    box = await box.withNewFile('/work/sub/file', 'text \u00e9\n', { permissions: 0o640 }).sync()
    assert.equal(await box.file('/work/sub/file').contents(), 'text \u00e9\n')
    assert.equal(await box.file('/work/sub/file').size(), 8)
    assert.equal((await exec('stat -c %a sub/file')).out, '640\n')
  })
  await claim('files of any bytes go by this host', async () => {
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i))
    fs.mkdirSync(`${room}/in`)
    fs.writeFileSync(`${room}/in/bytes`, bytes)
    box = await box.withDirectory('/work', dag.host().directory(`${room}/in`)).sync()
    assert.equal((await exec('wc -c <bytes')).out, '256\n')
    await box.file('/work/bytes').export(`${room}/out`)
    assert.deepEqual(fs.readFileSync(`${room}/out`), bytes)
  })
  await claim('a directory is listed', async () => {
    assert.deepEqual(await box.directory('/work').entries(),
      ['.keep', 'bytes', 'made', 'sub/'])
  })
  await claim('a file is deleted, and one that is not there without an error', async () => {
    box = await box.withoutFile('/work/made').withoutFile('/work/nothing').sync()
    assert.deepEqual(await box.directory('/work').entries(), ['.keep', 'bytes', 'sub/'])
  })
  await claim('what is not there is an error', async () => {
    await assert.rejects(box.file('/work/nothing').contents(), /no such file or directory/)
    await assert.rejects(box.directory('/work/bytes').entries(), /not a directory/)
  })
  await claim('commands run in another directory', async () => {
    box = box.withWorkdir('/work/sub')
    assert.equal((await exec('pwd')).out, '/work/sub\n')
    box = box.withWorkdir('/work')
  })
  await claim('a directory is exported, and refreshed from this host', async () => {
    await box.directory('/work').export(`${room}/tree`)
    assert.equal(fs.readFileSync(`${room}/tree/sub/file`, 'utf8'), 'text \u00e9\n')
    fs.writeFileSync(`${room}/tree/sub/file`, 'changed\n')
    box = await box.withDirectory('/work',
      dag.host().directory(`${room}/tree`, { noCache: true })).sync()
    assert.equal(await box.file('/work/sub/file').contents(), 'changed\n')
  })
  await claim('an id is a snapshot', async () => {
    const before = box
    await exec('rm -rf /work/sub')
    assert.ok(!(await box.directory('/work').entries()).includes('sub/'))
    assert.ok((await before.directory('/work').entries()).includes('sub/'))
  })
  await claim('a container is an archive, and made from it', async () => {
    await box.export(`${room}/archive.tar`)
    const again = dag.container().import_(dag.host().file(`${room}/archive.tar`))
    assert.deepEqual(await again.directory('/work').entries(), ['.keep', 'bytes'])
  })
  await claim('a Dockerfile is built', async () => {
    fs.mkdirSync(`${room}/context`)
    fs.writeFileSync(`${room}/context/Dockerfile`, 'FROM alpine:3.20\nRUN echo built >/built\n')
    const built = dag.host().directory(`${room}/context`).dockerBuild()
    assert.equal(await built.file('/built').contents(), 'built\n')
  })
  await claim('a directory is a root', async () => {
    const root = dag.container().withRootfs(box.rootfs()).withNewFile('/new', 'new')
    assert.equal(await root.file('/new').contents(), 'new')
  })
  await claim('a repository is fetched', async () => {
    const head = dag.git(repository).head()
    assert.match(await head.commit(), /^[0-9a-f]{40}$/)
    assert.deepEqual(await head.tree().entries(), ['.git/', 'README.md'])
  })
  await claim('an image that is not there is an error', async () => {
    await assert.rejects(dag.container().from('example.com/missing').sync(),
      /failed to resolve image/)
  })
}

await connection(scenario, { LogOutput: process.stderr })
console.log(`1..${number}`)
