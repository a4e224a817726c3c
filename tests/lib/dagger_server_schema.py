"""The part of Dagger's GraphQL schema that clients of the loopback server may use: a line for each
field, its arguments and its type. "&T" is an id of a T: the scalar TID up to 0.20, ID from 0.21 on.
"@A B" in front: only there where the schema is one of these. Descriptions are left out.
"""
import re

TABLE = """
type Query
  container(platform: Platform): Container!
  directory: Directory!
  git(url: String!, keepGitDir: Boolean, sshKnownHosts: String, httpAuthUsername: String, \
httpAuthToken: &Secret, httpAuthHeader: &Secret): GitRepository!
  host: Host!
  setSecret(name: String!, plaintext: String!): Secret!
  version: String!
  defaultPlatform: Platform!
  @0.21 node(id: ID!): Node
  @0.20 loadContainerFromID(id: &Container!): Container!
  @0.20 loadDirectoryFromID(id: &Directory!): Directory!
  @0.20 loadFileFromID(id: &File!): File!
  @0.20 loadSecretFromID(id: &Secret!): Secret!

type Container
  id: &Container!
  sync: &Container!
  exitCode: Int!
  stdout: String!
  stderr: String!
  from(address: String!): Container!
  import(source: &File!, tag: String): Container!
  withRootfs(directory: &Directory!): Container!
  rootfs: Directory!
  withDirectory(path: String!, source: &Directory!, exclude: [String!], include: [String!], \
gitignore: Boolean, owner: String, expand: Boolean): Container!
  withMountedDirectory(path: String!, source: &Directory!, owner: String, \
expand: Boolean): Container!
  withFile(path: String!, source: &File!, permissions: Int, owner: String, \
expand: Boolean): Container!
  withNewFile(path: String!, contents: String!, permissions: Int, owner: String, \
expand: Boolean): Container!
  withoutFile(path: String!, expand: Boolean): Container!
  withoutFiles(paths: [String!]!, expand: Boolean): Container!
  withoutDirectory(path: String!, expand: Boolean): Container!
  withSymlink(target: String!, linkName: String!, expand: Boolean): Container!
  withExec(args: [String!]!, useEntrypoint: Boolean, stdin: String, redirectStdin: String, \
redirectStdout: String, redirectStderr: String, expect: ReturnType, \
experimentalPrivilegedNesting: Boolean, insecureRootCapabilities: Boolean, expand: Boolean, \
noInit: Boolean): Container!
  withEnvVariable(name: String!, value: String!, expand: Boolean): Container!
  withoutEnvVariable(name: String!): Container!
  withWorkdir(path: String!, expand: Boolean): Container!
  withUser(name: String!): Container!
  withLabel(name: String!, value: String!): Container!
  label(name: String!): String
  workdir: String!
  user: String!
  envVariable(name: String!): String
  envVariables: [EnvVariable!]!
  directory(path: String!, expand: Boolean): Directory!
  file(path: String!, expand: Boolean): File!
  stat(path: String!, doNotFollowSymlinks: Boolean): Stat
  exists(path: String!, expectedType: ExistsType, doNotFollowSymlinks: Boolean): Boolean!
  export(path: String!, expand: Boolean): String!

type Directory
  id: &Directory!
  digest: String!
  sync: &Directory!
  entries(path: String): [String!]!
  stat(path: String!, doNotFollowSymlinks: Boolean): Stat
  exists(path: String!, expectedType: ExistsType, doNotFollowSymlinks: Boolean): Boolean!
  file(path: String!): File!
  directory(path: String!): Directory!
  withNewFile(path: String!, contents: String!, permissions: Int): Directory!
  withNewDirectory(path: String!, permissions: Int): Directory!
  withFile(path: String!, source: &File!, permissions: Int, owner: String): Directory!
  withDirectory(path: String!, source: &Directory!, exclude: [String!], include: [String!], \
gitignore: Boolean, owner: String): Directory!
  withSymlink(target: String!, linkName: String!): Directory!
  withoutFile(path: String!): Directory!
  withoutDirectory(path: String!): Directory!
  export(path: String!, wipe: Boolean): String!
  dockerBuild(dockerfile: String, platform: Platform, target: String, noInit: Boolean): Container!

type File
  id: &File!
  sync: &File!
  contents(offsetLines: Int, limitLines: Int): String!
  size: Int!
  name: String!
  export(path: String!, allowParentDirPath: Boolean): String!

type Host
  directory(path: String!, exclude: [String!], include: [String!], noCache: Boolean, \
gitignore: Boolean): Directory!
  file(path: String!, noCache: Boolean): File!

type GitRepository
  branch(name: String!): GitRef!
  tag(name: String!): GitRef!
  ref(name: String!): GitRef!
  head: GitRef!
  branches(patterns: [String!]): [String!]!

type GitRef
  commit: String!
  ref: String!
  tree(discardGitDir: Boolean, depth: Int, includeTags: Boolean): Directory!

type Secret
  id: &Secret!
  name: String!

type Stat
  name: String!
  fileType: FileType
  size: Int!
  permissions: Int!

type EnvVariable
  name: String!
  value: String!

type __Schema
  queryType: __Type!

type __Type
  name: String
  fields: [__Field!]

type __Field
  name: String!
"""

ENUMS = {"ReturnType": ["SUCCESS", "FAILURE", "ANY"],
         "ExistsType": ["REGULAR_TYPE", "DIRECTORY_TYPE", "SYMLINK_TYPE"]}
SCALARS = {"String", "Int", "Boolean", "Platform", "ID", "FileType"}
NODES = {"Container", "Directory", "File", "Secret"}
# Ends of a chain whose results the engine keeps over the end of a session.
KEPT = {"from", "withExec", "withNewFile", "withFile", "withDirectory", "withoutFile",
        "withoutFiles", "withoutDirectory", "withSymlink"}


class Field:
    def __init__(self, args, made):
        self.args, self.made = args, made


def id_scalar(era, of):
    return of + "ID" if era == "0.20" else "ID"


def parse_line(line, era):
    """NAME, Field; or None where this schema has no such field."""
    if line.startswith("@"):
        eras, _, line = line[1:].partition(" ")
        if era not in eras.split():
            return None
    name, args, made = re.fullmatch(r"(\w+)(?:\((.*)\))?: (\S+)", line).groups()
    pairs = [part.split(": ") for part in (args or "").split(", ") if part]
    return name, Field(dict(pairs), made)


def load(era):
    """{TYPE: {FIELD: Field}} of the schema "0.20" or "0.21"."""
    types, at = {}, None
    for line in TABLE.splitlines():
        if line.startswith("type "):
            at = types[line[5:]] = {}
        elif line.strip() and (found := parse_line(line.strip(), era)):
            at[found[0]] = found[1]
    types["Query"]["__schema"] = Field({}, "__Schema!")
    return types


def bare(made):
    """The name of a type without its brackets and marks."""
    return made.strip("[]!")
