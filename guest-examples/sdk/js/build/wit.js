// The world of a handler: hostler's world, and the interfaces that its code imports.

import { cp, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

const OWN = join(import.meta.dirname, "../wit");

export const WORLD = "handler";

/** Write the world into this folder, with the packages that the project brings in `wit/`. */
export async function writeWorld(folder, imports, project) {
  await rm(folder, { recursive: true, force: true });
  await mkdir(join(folder, "deps"), { recursive: true });
  for (const name of await readdir(OWN)) await addPackage(folder, join(OWN, name), name);
  for (const name of await readdir(join(project, "wit")).catch(() => [])) {
    await addPackage(folder, join(project, "wit", name), `project-${name}`);
  }
  const lines = [...new Set(imports)].sort().map((name) => `  import ${name};`);
  const world = ["package hostler:built;", "", `world ${WORLD} {`, "  include hostler:handler/handler@1.2.0;", ...lines, "}"];
  await writeFile(join(folder, "world.wit"), world.join("\n") + "\n");
}

async function addPackage(folder, from, name) {
  await cp(from, join(folder, "deps", name), { recursive: true, dereference: true });
}
